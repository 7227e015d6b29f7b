//! What a run says: in a page, in a table, in words.

mod answer;
mod findings;
mod goals;
mod html;
mod json;
mod markdown;
mod profile;
mod published;
pub(crate) mod table;
mod terminal;
pub(crate) mod units;

pub(crate) use findings::word;
pub use html::page;
pub use json::judgement;
pub use markdown::markdown;
pub use terminal::table;

//! What a run says: in a page, in a table, in words.

mod answer;
mod findings;
mod html;
mod markdown;
pub(crate) mod table;
mod terminal;
pub(crate) mod units;

pub(crate) use findings::word;
pub use html::page;
pub use markdown::markdown;
pub use terminal::table;

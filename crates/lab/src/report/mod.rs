//! Reports: as a page, as a table, in words.

mod answer;
mod findings;
mod goals;
mod html;
mod judgement;
mod markdown;
mod profile;
mod published;
mod sentence;
pub(crate) mod table;
mod terminal;
pub(crate) mod units;

pub(crate) use findings::word;
pub use html::page;
pub use judgement::{Judgement, Line};
pub use markdown::{comparison, markdown, section};
pub use terminal::table;

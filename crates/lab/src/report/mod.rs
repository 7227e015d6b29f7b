//! What a run says: in a page, in a table, in words.

mod answer;
mod findings;
mod html;
mod judgement;
mod markdown;
mod published;
mod sentence;
pub(crate) mod table;
mod terminal;
pub(crate) mod units;

pub(crate) use findings::word;
pub use html::page;
pub use judgement::{Judgement, Line};
pub use markdown::{comparison, section};
pub use terminal::table;

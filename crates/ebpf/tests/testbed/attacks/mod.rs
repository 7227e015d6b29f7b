//! What a program of a pod without any privilege may try, so as to reach whom it may not, or to harm others.

mod armed;
mod caller;
mod conversations;
mod dials;
mod floods;
mod flows;
mod listeners;
mod past_lookup;
mod places;
mod raw;
mod scene;
mod source_routes;

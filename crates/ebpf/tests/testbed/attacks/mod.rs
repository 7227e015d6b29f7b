//! What a program without privileges in a pod may try, to reach forbidden hosts or to harm others.

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

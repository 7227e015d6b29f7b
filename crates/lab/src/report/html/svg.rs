//! Parts that all drawings share.
//!
//! Every drawing is as wide as a phone's screen, so that its text has the right size there; wider pages show several side by side.
//! Elements are never self-closing, since HTML would take what follows for their children.

use super::scale::Scale;
use crate::report::table::cut;
use maud::{Markup, html};

/// Width of every drawing, in its own units.
pub const WIDTH: f64 = 360.0;

/// Number of shapes for variants' marks, so that colour is never the only difference.
const SHAPES: usize = 6;

/// One decimal, a tenth of a pixel.
pub fn px(place: f64) -> String {
    format!("{place:.1}")
}

/// The classes by which a variant is hidden and coloured.
pub fn class(variant: usize) -> String {
    format!("variant n{variant}")
}

pub fn drawing(label: &str, height: f64, content: Markup) -> Markup {
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (px(height)) } role="img" aria-label=(label) { (content) }
    }
}

/// A drawing with a caption.
pub fn figure(caption: Markup, drawing: Markup) -> Markup {
    html! { figure { figcaption { (caption) } (drawing) } }
}

pub fn text(x: f64, y: f64, class: &str, words: &str) -> Markup {
    html! { text x=(px(x)) y=(px(y)) class=(class) { (words) } }
}

/// A heading inside a drawing, cut off at the drawing's end.
pub fn name(y: f64, words: &str) -> Markup {
    let most = (WIDTH / wide("x")) as usize;
    html! { text.name x="1" y=(px(y)) { (cut(words, most)) @if words.chars().count() > most { title { (words) } } } }
}

pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! { line class=(class) x1=(px(from.0)) y1=(px(from.1)) x2=(px(to.0)) y2=(px(to.1)) {} }
}

/// Vertical grid lines with numbers.
pub fn upright_grid(scale: &Scale, ticks: &[f64], top: f64, bottom: f64, name: &dyn Fn(f64) -> String) -> Markup {
    upright(ticks.iter().map(|&tick| (scale.at(tick), name(tick))).collect(), top, bottom)
}

/// The same for given positions and labels.
pub fn upright(labels: Vec<(f64, String)>, top: f64, bottom: f64) -> Markup {
    html! {
        @for (x, _) in &labels { (line("grid", (*x, top), (*x, bottom))) }
        @for (x, label, anchor) in spaced(labels) { (text(x, bottom + 14.0, anchor, &label)) }
    }
}

/// Leaves out labels that touch the one before, and moves the outermost inside.
fn spaced(labels: Vec<(f64, String)>) -> Vec<(f64, String, &'static str)> {
    let mut free = f64::MIN;
    let mut all = Vec::new();
    for (x, label) in labels {
        let half = wide(&label) / 2.0;
        let (start, anchor, x) = match x {
            _ if x - half < 1.0 => (0.0, "soft", 1.0),
            _ if x + half > WIDTH - 1.0 => (WIDTH - 2.0 * half, "soft end", WIDTH - 1.0),
            _ => (x - half, "soft middle", x),
        };
        if start > free {
            free = start + 2.0 * half + 6.0;
            all.push((x, label, anchor));
        }
    }
    all
}

/// Approximate width of a text; system fonts differ.
pub fn wide(text: &str) -> f64 {
    text.chars().count() as f64 * 6.4
}

/// Horizontal grid lines with numbers left of `left`.
pub fn level_grid(scale: &Scale, ticks: &[f64], left: f64, right: f64, name: &dyn Fn(f64) -> String) -> Markup {
    html! {
        @for &tick in ticks {
            (line("grid", (left, scale.at(tick)), (right, scale.at(tick))))
            (text(left - 6.0, scale.at(tick) + 4.0, "soft end", &name(tick)))
        }
    }
}

/// A variant's mark.
pub fn mark(variant: usize, x: f64, y: f64) -> Markup {
    let path = match variant % SHAPES {
        0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        1 => "m-3.6-3.6h7.2v7.2h-7.2z",
        2 => "m0-5l5 5l-5 5l-5-5z",
        3 => "m0-4.6l4.6 8h-9.2z",
        4 => "m0 4.6l4.6-8h-9.2z",
        _ => "m-4.4-1.6h2.8v-2.8h3.2v2.8h2.8v3.2h-2.8v2.8h-3.2v-2.8h-2.8z",
    };
    html! { path class="mark" d={ "M" (px(x)) " " (px(y)) (path) } {} }
}

/// A polyline's points.
pub fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let steps = points.into_iter().enumerate();
    steps.map(|(number, (x, y))| format!("{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' })).collect()
}

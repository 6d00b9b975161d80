//! Progress of template builds, on standard error: an animated line on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sandcove_image::Event;

use crate::output::note;

/// Shows the events of a build.
pub struct LayerProgress {
    bar: Option<ProgressBar>,
}

impl LayerProgress {
    /// Starts the display.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg:.dim}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar }
    }

    /// Shows one event.
    pub fn show(&self, event: &Event<'_>) {
        match (event, &self.bar) {
            (Event::Building(layer), Some(bar)) => {
                bar.reset_elapsed();
                bar.set_prefix(format!("building template layer {layer}"));
            }
            (Event::Building(layer), None) => note!("building template layer {layer}"),
            (Event::Output(line), Some(bar)) => bar.set_message((*line).to_owned()),
            (Event::Output(line), None) => tracing::debug!(line, "template build"),
            (Event::Ready(layer, took), Some(bar)) => {
                bar.suspend(|| note!("built template layer {layer} in {} s", took.as_secs()));
            }
            (Event::Ready(layer, took), None) => {
                note!("built template layer {layer} in {} s", took.as_secs());
            }
        }
    }
}

impl Drop for LayerProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

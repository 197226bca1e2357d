//! What stands around a plot: title above; notes, caption and source below.

use super::canvas::{Anchor, Canvas, Font, INK, PALE_INK, TITLE, wrap};

/// Space at the edges of a chart.
pub(super) const MARGIN: f64 = 14.0;

const NOTE: Font = Font { size: 11.0, bold: false, ink: PALE_INK };
const CAPTION: Font = Font { size: 12.5, bold: false, ink: INK };

/// What a chart of any kind has.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) caption: &'a str,
    pub(super) source: &'a str,
    pub(super) width: f64,
}

impl Frame<'_> {
    /// Writes the title; answers where it ends.
    pub(super) fn head(&self, canvas: &mut Canvas) -> f64 {
        self.lines(canvas, MARGIN, TITLE, self.title)
    }

    /// Writes what stands below `y`, and makes the document.
    pub(super) fn finish(&self, mut canvas: Canvas, mut y: f64, notes: &[String]) -> String {
        for note in notes {
            y = self.lines(&mut canvas, y + 4.0, NOTE, note);
        }
        if !self.caption.is_empty() {
            y = self.lines(&mut canvas, y + 8.0, CAPTION, self.caption);
        }
        if !self.source.is_empty() {
            y = self.lines(&mut canvas, y + 6.0, NOTE, self.source);
        }
        canvas.finish((self.width, y + MARGIN), self.title, self.caption)
    }

    fn lines(&self, canvas: &mut Canvas, mut y: f64, font: Font, text: &str) -> f64 {
        for line in wrap(text, font, self.width - 2.0 * MARGIN) {
            canvas.text((MARGIN, y + font.size), Anchor::Start, font, &line);
            y += font.size * 1.35;
        }
        y
    }
}

/// The note under a chart with hollow markers.
pub(super) fn marks_note(marks_note: &str) -> String {
    let what = if marks_note.is_empty() { "as reported elsewhere" } else { marks_note };
    format!("Hollow markers: {what}.")
}

/// The note under a chart from which `points` had to be left out.
pub(super) fn hidden_note(points: usize) -> Option<String> {
    let noun = if points == 1 { "number" } else { "numbers" };
    (points > 0).then(|| {
        format!("Not shown: {points} {noun} not finite or, where the axis is logarithmic, not above zero.")
    })
}

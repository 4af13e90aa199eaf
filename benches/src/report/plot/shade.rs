//! The colours of the cells of a map.

use plotters::style::RGBColor;
use plotters::style::colors::WHITE;

use super::canvas::{BORDER, Canvas, Font, INK, LINE, TEXT};

/// Cells of workloads that fit after retries.
pub(crate) const RETRIES: RGBColor = RGBColor(253, 208, 162);
/// Cells of workloads with failed requests.
pub(crate) const FAILS: RGBColor = RGBColor(217, 95, 14);
/// Cells of workloads that the policy does not support.
pub(crate) const UNSUPPORTED: RGBColor = RGBColor(225, 225, 225);

/// Shares up to this one have the darkest shade.
const DARKEST: f64 = 0.5;

/// The scale from the darkest shade to white.
pub(crate) fn scale(canvas: &Canvas<'_>, (left, top): (i32, i32)) -> anyhow::Result<()> {
    const STEPS: i32 = 50;
    const STEP: i32 = 6;
    for step in 0..STEPS {
        let share = DARKEST + (1.0 - DARKEST) * (f64::from(step) + 0.5) / f64::from(STEPS);
        let x = left + STEP * step;
        let color = of(share);
        canvas.cell([(x, top), (x + STEP - 1, top + LINE - 4)], color, color)?;
    }
    let corners = [(left, top), (left + STEP * STEPS - 1, top + LINE - 4)];
    let outline = corners.map(|(x, _)| x);
    for y in [corners[0].1, corners[1].1] {
        canvas.line(outline.iter().map(|&x| (x, y)).collect(), BORDER, 1)?;
    }
    let y = top + LINE + 6;
    let font = Font::new(TEXT);
    canvas.text("≤ 50 %", (left, y), font)?;
    for percent in [75, 100] {
        let x = left + STEP * STEPS * (percent - 50) / 50;
        canvas.text(&format!("{percent} %"), (x, y), font.centered())?;
    }
    Ok(())
}

/// Blue up to one half, then paler to white at 1 (the scale "Blues" of ColorBrewer, which is safe for colour-blind
/// readers).
pub(crate) fn of(share: f64) -> RGBColor {
    const BLUES: [[f64; 3]; 6] = [
        [8.0, 69.0, 148.0],
        [66.0, 146.0, 198.0],
        [107.0, 174.0, 214.0],
        [158.0, 202.0, 225.0],
        [198.0, 219.0, 239.0],
        [255.0, 255.0, 255.0],
    ];
    let place = ((share - DARKEST) / (1.0 - DARKEST)).clamp(0.0, 1.0) * (BLUES.len() - 1) as f64;
    let from = (place as usize).min(BLUES.len() - 2);
    let part = place - from as f64;
    let mix = |i: usize| (BLUES[from][i] * (1.0 - part) + BLUES[from + 1][i] * part) as u8;
    RGBColor(mix(0), mix(1), mix(2))
}

/// The relative luminance of a colour (WCAG 2).
fn luminance(color: RGBColor) -> f64 {
    let linear = |part: u8| (f64::from(part) / 255.0).powf(2.2);
    0.2126 * linear(color.0) + 0.7152 * linear(color.1) + 0.0722 * linear(color.2)
}

/// Dark or white text, whichever is easier to read on `color`.
pub(crate) fn ink_on(color: RGBColor) -> RGBColor {
    let contrast = |one: f64, other: f64| (one.max(other) + 0.05) / (one.min(other) + 0.05);
    let ground = luminance(color);
    if contrast(ground, luminance(INK)) >= contrast(ground, 1.0) {
        INK
    } else {
        WHITE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_cells_are_paler_and_all_text_has_contrast() {
        let shades: Vec<f64> = (40..=100)
            .map(|p| luminance(of(f64::from(p) / 100.0)))
            .collect();
        assert!(shades.is_sorted());
        assert_eq!(of(1.0), WHITE);
        let greys = [RETRIES, FAILS, UNSUPPORTED];
        for color in (40..=100).map(|p| of(f64::from(p) / 100.0)).chain(greys) {
            let (ink, ground) = (luminance(ink_on(color)), luminance(color));
            let contrast = (ink.max(ground) + 0.05) / (ink.min(ground) + 0.05);
            assert!(contrast > 4.0, "{color:?}: {contrast}");
        }
    }
}

//! The drawing surface of all plots: text, shapes and legends in pixels.

use anyhow::anyhow;
use coalesce_alloc::printable::printable;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Pixels around everything that is drawn.
pub(crate) const MARGIN: i32 = 16;
/// Pixels from one line of text to the next.
pub(crate) const LINE: i32 = 18;
/// The size of titles in pixels.
pub(crate) const TITLE: i32 = 16;
/// The size of most text in pixels.
pub(crate) const TEXT: i32 = 12;
/// The colour of text.
pub(crate) const INK: RGBColor = RGBColor(30, 30, 30);
/// The colour of notes and points that are not emphasized. Its contrast with white is above 4.5.
pub(crate) const FAINT: RGBColor = RGBColor(105, 105, 105);
/// The colour of grid lines.
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);

/// Colours that colour-blind readers can tell apart (Okabe and Ito, 2008), without those that are too pale for text.
pub(crate) const COLORS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 130, 95),
    RGBColor(175, 85, 135),
    RGBColor(150, 105, 0),
    RGBColor(90, 90, 90),
];

/// How a text is drawn. Its vertical middle is at the given place.
#[derive(Clone, Copy)]
pub(crate) struct Font {
    size: i32,
    color: RGBColor,
    align: HPos,
    upright: bool,
}

impl Font {
    /// Dark text of `size` pixels that begins at the given place.
    pub(crate) const fn new(size: i32) -> Self {
        Self {
            size,
            color: INK,
            align: HPos::Left,
            upright: false,
        }
    }

    pub(crate) const fn color(self, color: RGBColor) -> Self {
        Self { color, ..self }
    }

    pub(crate) const fn centered(self) -> Self {
        Self {
            align: HPos::Center,
            ..self
        }
    }

    /// The text ends at the given place.
    pub(crate) const fn right(self) -> Self {
        Self {
            align: HPos::Right,
            ..self
        }
    }

    /// The text runs from bottom to top.
    pub(crate) const fn upright(self) -> Self {
        Self {
            upright: true,
            ..self
        }
    }
}

/// The text as the image shows it.
fn shown(text: &str) -> String {
    printable(text).to_string()
}

/// The width of a text in pixels, for a wide font such as DejaVu Sans.
pub(crate) fn width(text: &str, size: i32) -> i32 {
    let em = |letter: char| match letter {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.34,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '→' => 1.0,
        '+' | '<' | '>' | '=' | '×' | '≤' => 0.84,
        _ if letter.is_uppercase() => 0.75,
        _ => 0.63,
    };
    let ems: f64 = shown(text).chars().map(em).sum();
    (ems * f64::from(size)).ceil() as i32
}

/// The width of the widest text in pixels.
pub(crate) fn widest<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, size: i32) -> i32 {
    let widths = texts.into_iter().map(|text| width(text.as_ref(), size));
    widths.max().unwrap_or(0)
}

/// The lines of a text that has `space` pixels. Words and settings strings are broken after spaces and commas.
pub(crate) fn wrap(text: &str, size: i32, space: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    const LONGEST: usize = 2000;
    let text = printable(text).within(LONGEST).to_string();
    for word in text.split_inclusive([' ', ',']) {
        let fits = |line: &&mut String| width(&format!("{line}{word}"), size) <= space;
        match lines.last_mut().filter(fits) {
            Some(line) => line.push_str(word),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The sample of an entry of a legend.
#[derive(Clone, Copy)]
pub(crate) enum Swatch {
    /// A line.
    Line(RGBColor),
    /// A dashed line.
    Dashed(RGBColor),
    /// A filled box.
    Area(RGBColor),
    /// A box with a border.
    Cell(RGBColor),
    /// A point.
    Dot(RGBColor),
    /// A cross: requests failed.
    Cross(RGBColor),
    /// A triangle: beyond the axis.
    Beyond(RGBColor),
}

/// Pixels of a sample, and of the space between entries.
const SWATCH: i32 = 24;
const SPACE: i32 = 22;

/// The entries of a legend in rows of at most `space` pixels, with the left edge of each.
fn arranged<T: AsRef<str>>(entries: &[(Swatch, T)], space: i32) -> Vec<(i32, i32)> {
    let (mut x, mut row) = (0, 0);
    let place = |(_, text): &(Swatch, T)| {
        let needed = SWATCH + 6 + width(text.as_ref(), TEXT);
        if x > 0 && x + needed > space {
            (x, row) = (0, row + 1);
        }
        let place = (x, row);
        x += needed + SPACE;
        place
    };
    entries.iter().map(place).collect()
}

/// The height of a legend in pixels.
pub(crate) fn legend_height<T: AsRef<str>>(entries: &[(Swatch, T)], space: i32) -> i32 {
    let places = arranged(entries, space);
    places.last().map_or(0, |&(_, row)| LINE * (row + 1))
}

/// An image in the making.
pub(crate) struct Canvas<'a>(Area<'a>);

impl Canvas<'_> {
    pub(crate) fn text(&self, text: &str, at: (i32, i32), font: Font) -> anyhow::Result<()> {
        let mut style = ("sans-serif", 1.24 * f64::from(font.size))
            .into_font()
            .color(&font.color)
            .pos(Pos::new(font.align, VPos::Center));
        if font.upright {
            style.font = style.font.transform(FontTransform::Rotate270);
        }
        Ok(self.0.draw_text(&shown(text), &style, at)?)
    }

    /// Lines of text; the middle of the first is at `at`. Returns the height.
    pub(crate) fn lines<T: AsRef<str>>(
        &self,
        lines: &[T],
        at: (i32, i32),
        font: Font,
    ) -> anyhow::Result<i32> {
        for (number, line) in (0..).zip(lines) {
            self.text(line.as_ref(), (at.0, at.1 + LINE * number), font)?;
        }
        Ok(LINE * lines.len() as i32)
    }

    /// The title of the image, and remarks below it.
    pub(crate) fn heading(&self, title: &str, remarks: &[String]) -> anyhow::Result<()> {
        self.text(title, (MARGIN, MARGIN + TITLE / 2), Font::new(TITLE))?;
        let place = (MARGIN, MARGIN + TITLE + LINE);
        self.lines(remarks, place, Font::new(TEXT).color(FAINT))?;
        Ok(())
    }

    pub(crate) fn line(
        &self,
        points: Vec<(i32, i32)>,
        color: RGBColor,
        thickness: u32,
    ) -> anyhow::Result<()> {
        let style = color.stroke_width(thickness);
        Ok(self.0.draw(&PathElement::new(points, style))?)
    }

    pub(crate) fn dashed(
        &self,
        points: Vec<(i32, i32)>,
        color: RGBColor,
        thickness: u32,
    ) -> anyhow::Result<()> {
        let style = color.stroke_width(thickness);
        let path = DashedPathElement::new(points, 7, 5, style);
        Ok(self.0.draw(&path)?)
    }

    pub(crate) fn area(&self, outline: Vec<(i32, i32)>, color: RGBColor) -> anyhow::Result<()> {
        Ok(self.0.draw(&Polygon::new(outline, color.filled()))?)
    }

    pub(crate) fn cell(
        &self,
        corners: [(i32, i32); 2],
        fill: RGBColor,
        border: RGBColor,
    ) -> anyhow::Result<()> {
        self.0.draw(&Rectangle::new(corners, fill.filled()))?;
        Ok(self.0.draw(&Rectangle::new(corners, border))?)
    }

    pub(crate) fn dot(&self, at: (i32, i32), radius: i32, color: RGBColor) -> anyhow::Result<()> {
        Ok(self.0.draw(&Circle::new(at, radius, color.filled()))?)
    }

    /// A point that does not hide others.
    pub(crate) fn ring(&self, at: (i32, i32), color: RGBColor) -> anyhow::Result<()> {
        self.0.draw(&Circle::new(at, 4, color.mix(0.35).filled()))?;
        Ok(self.0.draw(&Circle::new(at, 4, color))?)
    }

    pub(crate) fn cross(&self, at: (i32, i32), color: RGBColor) -> anyhow::Result<()> {
        Ok(self.0.draw(&Cross::new(at, 4, color.stroke_width(2)))?)
    }

    /// Draws a triangle at the edge of a chart that points right or down, towards a value beyond the edge.
    pub(crate) fn beyond(
        &self,
        (x, y): (i32, i32),
        (right, down): (i32, i32),
        color: RGBColor,
    ) -> anyhow::Result<()> {
        let tip = (x + 5 * right, y + 5 * down);
        let base = |side: i32| {
            (
                x - 4 * right + 5 * side * down,
                y - 4 * down + 5 * side * right,
            )
        };
        self.area(vec![tip, base(1), base(-1)], color)
    }

    /// The entries of a legend in rows of at most `space` pixels. Returns the height.
    pub(crate) fn legend<T: AsRef<str>>(
        &self,
        entries: &[(Swatch, T)],
        (left, top): (i32, i32),
        space: i32,
    ) -> anyhow::Result<i32> {
        for ((x, row), (swatch, text)) in arranged(entries, space).into_iter().zip(entries) {
            let (x, y) = (left + x, top + LINE * row + LINE / 2);
            let stroke = vec![(x, y), (x + SWATCH, y)];
            let corners = [(x, y - 6), (x + SWATCH, y + 6)];
            match *swatch {
                Swatch::Line(color) => self.line(stroke, color, 3)?,
                Swatch::Dashed(color) => self.dashed(stroke, color, 2)?,
                Swatch::Area(color) => self.cell(corners, color, color)?,
                Swatch::Cell(color) => self.cell(corners, color, BORDER)?,
                Swatch::Dot(color) => self.dot((x + SWATCH - 6, y), 4, color)?,
                Swatch::Cross(color) => self.cross((x + SWATCH - 6, y), color)?,
                Swatch::Beyond(color) => self.beyond((x + SWATCH - 6, y), (1, 0), color)?,
            }
            self.text(text.as_ref(), (x + SWATCH + 6, y), Font::new(TEXT))?;
        }
        Ok(legend_height(entries, space))
    }
}

/// The colour of the borders of cells.
pub(crate) const BORDER: RGBColor = RGBColor(205, 205, 205);

/// The image that `paint` draws on a white background.
pub(crate) fn draw(
    (width, height): (i32, i32),
    paint: impl FnOnce(&Canvas<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let size = (u32::try_from(width)?, u32::try_from(height)?);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
        let canvas = Canvas(area);
        paint(&canvas)?;
        canvas.0.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A text in an image, and its box.
    #[derive(Debug)]
    pub(crate) struct Label {
        pub(crate) text: String,
        left: i32,
        top: i32,
        right: i32,
        bottom: i32,
    }

    fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
        let value = tag.split_once(&format!(" {name}=\"")).unwrap().1;
        value.split_once('"').unwrap().0
    }

    /// All texts in an image.
    pub(crate) fn labels(svg: &str) -> Vec<Label> {
        let label = |element: &str| {
            let (tag, text) = element.split_once('>').unwrap();
            let text = text
                .split_once("</text>")
                .unwrap()
                .0
                .trim()
                .replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&apos;", "'");
            let number = |name| attribute(tag, name).parse::<f64>().unwrap().round() as i32;
            let (x, y, size) = (number("x"), number("y"), number("font-size"));
            let long = width(&text, size);
            let before = match attribute(tag, "text-anchor") {
                "start" => 0,
                "middle" => long / 2,
                _ => long,
            };
            let half = size / 2;
            let (left, top, right, bottom) = if tag.contains("rotate(270") {
                (x - half, y + before - long, x + half, y + before)
            } else {
                (x - before, y - half, x - before + long, y + half)
            };
            Label {
                text,
                left,
                top,
                right,
                bottom,
            }
        };
        svg.split("<text").skip(1).map(label).collect()
    }

    /// All texts are within the image and do not overlap, and the background is white.
    pub(crate) fn assert_legible(svg: &str) {
        let tag = svg.split_once('>').unwrap().0;
        let size = |name| attribute(tag, name).parse::<i32>().unwrap();
        let (width, height) = (size("width"), size("height"));
        let background = svg.split_once("<rect").unwrap().1;
        assert_eq!(attribute(background, "fill"), "#FFFFFF");
        assert_eq!(attribute(background, "opacity"), "1");
        let labels = labels(svg);
        for (number, one) in labels.iter().enumerate() {
            let within =
                one.left >= 0 && one.top >= 0 && one.right <= width && one.bottom <= height;
            assert!(within, "outside {width} x {height}: {one:?}");
            for other in &labels[number + 1..] {
                let apart = one.right <= other.left
                    || other.right <= one.left
                    || one.bottom <= other.top
                    || other.bottom <= one.top;
                assert!(apart, "{one:?} overlaps {other:?}");
            }
        }
    }

    #[test]
    fn long_texts_are_wrapped() {
        let text = "expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:8";
        let lines = wrap(text, TEXT, 260);
        assert!(lines.len() > 1);
        assert!(lines.iter().all(|line| width(line, TEXT) <= 260));
        assert_eq!(lines.concat(), text);
    }

    #[test]
    fn legends_break_into_rows() {
        let entries = [(Swatch::Line(INK), "a setting"); 9];
        let svg = draw((300, legend_height(&entries, 268) + 32), |canvas| {
            canvas.legend(&entries, (MARGIN, MARGIN), 268).map(|_| ())
        });
        assert_legible(&svg.unwrap());
    }
}

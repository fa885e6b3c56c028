//! The plot of throughput and p99 against the number of tasks.

use crate::report::{Curve, Report};
use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::combinators::IntoLogRange,
    drawing::{DrawingArea, IntoDrawingArea},
    element::Circle,
    prelude::{PathElement, SVGBackend},
    series::LineSeries,
    style::{Color, RGBColor, WHITE},
};
use std::{error::Error, ops::Range, path::Path};

/// The size of the picture, in pixels.
const SIZE: (u32, u32) = (960, 420);
/// The colours of the rivals. They are from the palette of Okabe and Ito, whose colours also differ for people
/// with colour-blindness.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(90, 90, 90),
];

/// Draws the curves of a report into an SVG file.
///
/// # Errors
/// A text that names the file and the reason.
pub(crate) fn draw(report: &Report, path: &Path) -> Result<(), String> {
    let drawn = || -> Result<(), Box<dyn Error>> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, right) = root.split_horizontally(SIZE.0 / 2);
        panel(&left, "cycles a second", &report.curve(Curve::Cycles))?;
        panel(&right, "acquire p99, ms", &report.curve(Curve::AcquireP99))?;
        root.present()?;
        Ok(())
    };
    drawn().map_err(|error| format!("--plot {}: {error}", path.display()))
}

/// Draws one chart, with a logarithmic scale on both axes.
fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    rivals: &[(&str, Vec<(usize, f64)>)],
) -> Result<(), Box<dyn Error>> {
    let points = || rivals.iter().flat_map(|(_, points)| points);
    let tasks = range(points().map(|(tasks, _)| *tasks as f64)).ok_or("there are no figures to draw")?;
    let values = range(points().map(|(_, value)| *value)).ok_or("the figures are not positive numbers")?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(tasks.log_scale(), values.log_scale())?;
    chart.configure_mesh().x_desc("tasks").light_line_style(WHITE).draw()?;
    for ((rival, points), colour) in rivals.iter().zip(COLOURS) {
        let line = points.iter().map(|(tasks, value)| (*tasks as f64, *value));
        chart.draw_series(line.clone().map(|at| Circle::new(at, 3, colour.filled())))?;
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(*rival)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    Ok(())
}

/// Returns a range that contains all positive values, with a tenth of space on both sides. Returns `None` if
/// no value is positive.
fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for value in values.filter(|value| value.is_finite() && *value > 0.0) {
        (least, most) = (least.min(value), most.max(value));
    }
    (most > 0.0).then(|| least / 1.1..most * 1.1)
}

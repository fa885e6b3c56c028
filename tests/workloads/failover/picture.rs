//! The picture of the distributions: one chart for each TTL, with the share of the trials that had a leader again after each
//! time.

use super::{Figures, kind::Kind};
use crate::harness::Durations;
use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::Shift,
    drawing::{DrawingArea, IntoDrawingArea},
    prelude::{PathElement, SVGBackend},
    series::LineSeries,
    style::{Color, RGBColor, ShapeStyle, WHITE},
};
use std::{collections::BTreeSet, error::Error, path::Path, time::Duration};

/// The width of a chart and its height, in pixels.
const CHART: (u32, u32) = (480, 300);
/// The number of charts beside each other.
const COLUMNS: usize = 2;
/// The number of points of a curve.
const POINTS: usize = 100;

/// Draws all distributions into an SVG file.
pub(super) fn draw(figures: &Figures, path: &Path) -> Result<(), Box<dyn Error>> {
    let ttls: BTreeSet<Duration> = figures.keys().map(|(ttl, ..)| *ttl).collect();
    let rows = ttls.len().div_ceil(COLUMNS).max(1);
    let size = (CHART.0 * u32::try_from(COLUMNS)?, CHART.1 * u32::try_from(rows)?);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, ttl) in root.split_evenly((rows, COLUMNS)).iter().zip(&ttls) {
        chart(area, *ttl, figures)?;
    }
    root.present()?;
    Ok(())
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    ttl: Duration,
    figures: &Figures,
) -> Result<(), Box<dyn Error>> {
    let curves = || figures.iter().filter(|((of, ..), durations)| *of == ttl && durations.len() > 0);
    let longest =
        curves().filter_map(|(_, durations)| durations.quantile(1000)).max().unwrap_or(ttl).as_secs_f64();
    let mut chart = ChartBuilder::on(area)
        .caption(format!("TTL {} s", ttl.as_secs_f64()), ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..longest * 1.02, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("seconds without a leader")
        .y_desc("% of the trials")
        .light_line_style(WHITE)
        .draw()?;
    for ((_, nodes, kind), durations) in curves() {
        let style = style(*kind, *nodes);
        chart
            .draw_series(LineSeries::new(curve(durations), style))?
            .label(format!("{kind}, {nodes} nodes"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .label_font(("sans-serif", 11))
        .draw()?;
    Ok(())
}

/// Returns the points of a distribution: seconds, and the percentage of the trials that took no longer.
fn curve(durations: &Durations) -> Vec<(f64, f64)> {
    let point = |percent: usize| {
        durations.quantile(percent * 1000 / POINTS).map(|time| (time.as_secs_f64(), percent as f64))
    };
    (0..=POINTS).filter_map(point).collect()
}

/// Returns a colour for each kind of fault, from the palette of Okabe and Ito, and a thicker line for more nodes.
fn style(kind: Kind, nodes: usize) -> ShapeStyle {
    let colour = match kind {
        Kind::Killed => RGBColor(213, 94, 0),
        Kind::Terminated => RGBColor(0, 158, 115),
        Kind::Stopped => RGBColor(0, 114, 178),
        Kind::CutOff => RGBColor(90, 90, 90),
    };
    colour.stroke_width(if nodes > 3 { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_has_a_chart_for_each_ttl_and_a_curve_for_each_fault() {
        let mut figures = Figures::new();
        for ttl in [2, 5] {
            for kind in Kind::ALL {
                let durations = (1..=10).map(|tenth| Duration::from_millis(tenth * 100 * ttl)).collect();
                figures.insert((Duration::from_secs(ttl), 3, kind), durations);
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        draw(&figures, file.path()).unwrap();
        let svg = std::fs::read_to_string(file.path()).unwrap();
        for text in ["TTL 2 s", "TTL 5 s", "SIGKILL, 3 nodes", "cut off, 3 nodes"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
    }
}

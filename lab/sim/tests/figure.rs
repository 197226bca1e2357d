//! Figures as a reader of SVG sees them: parsed by a library that knows nothing of ours.

use larder_sim::figure::{Axis, Bars, Figure, Group, Scale, Series, Unit};
use proptest::prelude::*;

const SVG: &str = "http://www.w3.org/2000/svg";

/// What a document draws.
struct Drawing {
    texts: Vec<String>,
    paths: usize,
    circles: usize,
}

/// Parses a document and checks what must hold for each: well-formed, one view box, every coordinate finite
/// and inside it, every size at zero or above.
fn check(svg: &str) -> Result<Drawing, TestCaseError> {
    let document = roxmltree::Document::parse(svg)
        .map_err(|error| TestCaseError::fail(format!("{error}\n{svg}")))?;
    let root = document.root_element();
    prop_assert!(root.has_tag_name((SVG, "svg")));
    let view_box = numbers(root.attribute("viewBox").unwrap_or_default());
    prop_assert_eq!(view_box.len(), 4);
    let (width, height) = (view_box[2], view_box[3]);
    prop_assert!(width > 100.0 && height > 30.0 && width < 5_000.0, "{} {}", width, height);

    let inside = |x: f64, y: f64| (0.0..=width).contains(&x) && (0.0..=height).contains(&y);
    let mut drawing = Drawing { texts: Vec::new(), paths: 0, circles: 0 };
    for node in root.descendants().filter(roxmltree::Node::is_element) {
        let number = |name: &str| -> f64 {
            node.attribute(name).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
        };
        match node.tag_name().name() {
            "path" => {
                drawing.paths += 1;
                let path = node.attribute("d").unwrap_or_default();
                let known = |c: char| "MLZ -.0123456789".contains(c);
                prop_assert!(path.starts_with('M') && path.chars().all(known), "{}", path);
                let points = numbers(path);
                prop_assert!(points.len() >= 4 && points.len().is_multiple_of(2), "{}", path);
                for point in points.chunks(2) {
                    prop_assert!(inside(point[0], point[1]), "{} in {} {}", path, width, height);
                }
            }
            "circle" => {
                drawing.circles += 1;
                prop_assert!(inside(number("cx"), number("cy")) && number("r") > 0.0);
            }
            "rect" => {
                let (x, y) = (number("x"), number("y"));
                prop_assert!(number("width") >= 0.0 && number("height") >= 0.0);
                // Corner and size are rounded to a tenth, each by itself.
                let (right, bottom) = (x + number("width") - 0.1, y + number("height") - 0.1);
                prop_assert!(inside(x, y) && inside(right.max(0.0), bottom.max(0.0)));
            }
            "text" => {
                prop_assert!(inside(number("x"), number("y")), "{:?}", node);
                drawing.texts.push(node.text().unwrap_or_default().to_owned());
            }
            "svg" | "title" | "desc" => {}
            other => return Err(TestCaseError::fail(format!("unexpected <{other}>"))),
        }
    }
    Ok(drawing)
}

fn numbers(text: &str) -> Vec<f64> {
    let parts = text.split(|c: char| "MLZ ".contains(c)).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().unwrap_or(f64::NAN)).collect()
}

/// Numbers as traces and mistakes make them: ordinary, equal, tiny, huge, not numbers.
fn any_number() -> impl Strategy<Value = f64> {
    let odd = vec![
        0.0,
        -0.0,
        1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        1e150,
        1e-150,
        5e-324,
        1e15,
        1e15 + 0.125,
    ];
    prop_oneof![
        4 => 0.0..1.0f64,
        2 => -1e6..1e6f64,
        1 => any::<f64>(),
        1 => prop::sample::select(odd),
    ]
}

fn any_series() -> impl Strategy<Value = Series> {
    (any::<String>(), prop::collection::vec((any_number(), any_number()), 0..30))
        .prop_map(|(name, points)| Series { name, points })
}

fn any_axis() -> impl Strategy<Value = Axis> {
    let scale = prop::sample::select(vec![Scale::Linear, Scale::Log]);
    let unit = prop::sample::select(vec![Unit::Plain, Unit::Percent, Unit::Si]);
    (any::<String>(), scale, unit).prop_map(|(label, scale, unit)| Axis { label, scale, unit })
}

fn any_group() -> impl Strategy<Value = Group> {
    let numbers = || prop::collection::vec(any_number(), 0..6);
    (any::<String>(), numbers(), numbers()).prop_map(|(name, values, marks)| Group {
        name,
        values,
        marks,
    })
}

proptest! {
    /// Any series, names and axes give a document that a reader accepts, with nothing outside its edges.
    /// Invariant 1 of `figure`.
    #[test]
    fn any_figure_is_a_picture(
        (title, caption, source, marks_note) in any::<(String, String, String, String)>(),
        (x, y) in (any_axis(), any_axis()),
        series in prop::collection::vec(any_series(), 0..14),
        marks in prop::collection::vec(any_series(), 0..3),
    ) {
        let figure = Figure { title, caption, source, x, y, series, marks, marks_note };
        check(&figure.svg())?;
    }

    /// The same for bars, with more or fewer values and marks than series. Invariant 1 of `figure`.
    #[test]
    fn any_bars_are_a_picture(
        (title, caption, source, marks_note) in any::<(String, String, String, String)>(),
        values in any_axis(),
        series in prop::collection::vec(any::<String>(), 0..5),
        groups in prop::collection::vec(any_group(), 0..6),
    ) {
        let bars = Bars { title, caption, source, values, series, groups, marks_note };
        check(&bars.svg())?;
    }

    /// No two names at the ends of lines lie on one another, however the lines end: more than fourteen units
    /// apart, where a name is twelve high.
    #[test]
    fn names_do_not_overlap(ends in prop::collection::vec(0.0..1.0f64, 1..60)) {
        let line = |(index, end): (usize, &f64)| {
            Series::new(format!("name{index}"), vec![(0.0, 0.0), (1.0, *end)])
        };
        let series: Vec<Series> = ends.iter().enumerate().map(line).collect();
        let count = series.len();
        let svg = Figure { series, ..Figure::default() }.svg();
        check(&svg)?;
        let document = roxmltree::Document::parse(&svg).expect("checked");
        let mut heights: Vec<f64> = document
            .descendants()
            .filter(|node| node.has_tag_name((SVG, "text")))
            .filter(|node| node.text().is_some_and(|text| text.starts_with("name")))
            .filter_map(|node| node.attribute("y")?.parse().ok())
            .collect();
        prop_assert_eq!(heights.len(), count);
        heights.sort_by(f64::total_cmp);
        for pair in heights.windows(2) {
            prop_assert!(pair[1] - pair[0] > 14.0, "{:?}", heights);
        }
    }
}

/// Every text that the caller gives is in the document as it was, markup and all.
#[test]
fn texts_are_kept() {
    let figure = Figure {
        title: "a < b & \"c\"".to_owned(),
        caption: "what is seen".to_owned(),
        source: "larder-lab sim hit-ratio".to_owned(),
        x: Axis::log("capacity").si(),
        y: Axis::linear("hit ratio").percent(),
        series: vec![Series::new("<lru>", vec![(10.0, 0.1), (1e4, 0.5)])],
        marks: vec![Series::new("paper", vec![(100.0, 0.2)])],
        marks_note: "as the paper reports".to_owned(),
    };
    let drawing = check(&figure.svg()).expect("a picture");
    for text in [
        "a < b & \"c\"",
        "what is seen",
        "larder-lab sim hit-ratio",
        "capacity",
        "hit ratio",
        "<lru>",
        "paper",
        "Hollow markers: as the paper reports.",
        "10k",
        "50 %",
    ] {
        assert!(drawing.texts.iter().any(|found| found == text), "{text}: {:?}", drawing.texts);
    }
}

/// A point that cannot be shown breaks its line in two and is confessed.
#[test]
fn a_gap_is_a_gap() {
    let with = |middle: f64| {
        let points = vec![(1.0, 1.0), (2.0, 2.0), (3.0, middle), (4.0, 4.0), (5.0, 5.0)];
        let y = Axis::log("y");
        let svg = Figure { y, series: vec![Series::new("a", points)], ..Figure::default() }.svg();
        check(&svg).expect("a picture")
    };
    let (whole, broken) = (with(3.0), with(0.0));
    assert_eq!(broken.circles + 1, whole.circles, "one marker less");
    let note = |drawing: &Drawing| {
        drawing.texts.iter().any(|text| text.starts_with("Not shown: 1 number "))
    };
    assert_eq!(broken.paths, whole.paths + 1, "two lines for one");
    assert!(note(&broken) && !note(&whole));
}

/// A mark needs no name of its own where a series has it.
#[test]
fn marks_share_the_name_of_their_series() {
    let series = vec![Series::new("lru", vec![(1.0, 1.0), (2.0, 2.0)])];
    let marks = vec![Series::new("lru", vec![(1.0, 1.5)]), Series::new("other", vec![(2.0, 1.5)])];
    let svg = Figure { series, marks, ..Figure::default() }.svg();
    let texts = check(&svg).expect("a picture").texts;
    assert_eq!(texts.iter().filter(|text| *text == "lru").count(), 1);
    assert_eq!(texts.iter().filter(|text| *text == "other").count(), 1);
    assert!(texts.iter().any(|text| text == "Hollow markers: as reported elsewhere."));
}

/// A line of half a million points is a small file, and its one spike is still in it.
#[test]
fn long_lines_are_thinned() {
    let wave = |i: u32| (f64::from(i), if i == 250_001 { 9.0 } else { f64::from(i % 7) / 7.0 });
    let series = vec![Series::new("wave", (0..500_000).map(wave).collect())];
    let svg = Figure { series, ..Figure::default() }.svg();
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    let document = roxmltree::Document::parse(&svg).expect("well-formed");
    let paths = document.descendants().filter_map(|node| node.attribute("d"));
    let longest = numbers(paths.max_by_key(|path| path.len()).expect("a line"));
    let mut heights: Vec<f64> = longest.chunks(2).map(|point| point[1]).collect();
    heights.sort_by(f64::total_cmp);
    assert!(heights[1] - heights[0] > 200.0, "{} and {}", heights[0], heights[1]);
}

/// The numbers of bars stand beside them, those of others with the marker that they have in the plot.
#[test]
fn bars_show_their_numbers() {
    let bars = Bars {
        values: Axis::linear("operations/s").si(),
        series: vec!["ours".to_owned(), "theirs".to_owned()],
        groups: vec![Group {
            name: "periodic".to_owned(),
            values: vec![31e6, f64::NAN],
            marks: vec![27_460_288.0],
        }],
        ..Bars::default()
    };
    let texts = check(&bars.svg()).expect("a picture").texts;
    for text in ["periodic", "ours", "31M  (◇ 27.5M)", "theirs", "–", "30M"] {
        assert!(texts.iter().any(|found| found == text), "{text}: {texts:?}");
    }
}

/// The same figure gives the same bytes. Invariant 2 of `figure`.
#[test]
fn figures_are_deterministic() {
    let mark = |i: u32| Series::new(format!("m{i}"), vec![(1.0, f64::from(i))]);
    let figure = Figure { marks: (0..20).map(mark).collect(), ..Figure::default() };
    assert_eq!(figure.svg(), figure.clone().svg());
}

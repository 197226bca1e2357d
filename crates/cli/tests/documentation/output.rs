//! Compares the output that a page shows with the real output.

/// How exactly the two must match.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Numbers depend on the machine, the time, or the stand-in.
    pub figures: bool,
    /// The last word of a line is a time.
    pub timed: bool,
    /// The page shows only some of the lines.
    pub excerpt: bool,
}

/// Checks that `shown` matches `came`; a line of dots in it matches any lines.
pub fn compare(shown: &[String], came: &str, rule: Rule) -> Result<(), String> {
    let came: Vec<String> = came.lines().map(|line| plain(line, rule)).collect();
    let mut shown: Vec<String> = shown.iter().map(|line| plain(line, rule)).collect();
    while shown.last().is_some_and(String::is_empty) {
        shown.pop();
    }
    let mut rest = came.iter();
    let mut any = rule.excerpt;
    for line in &shown {
        if matches!(line.as_str(), "..." | "[...]") {
            any = true;
        } else if any && rest.any(|came| fits(line, came)) {
            any = rule.excerpt;
        } else if any || !rest.next().is_some_and(|came| fits(line, came)) {
            return Err(format!("'{line}' is shown, but came not, or not there"));
        }
    }
    let mut left = rest.filter(|line| !line.is_empty());
    match left.next() {
        Some(line) if !any => Err(format!("'{line}' came, but is not shown")),
        _ => Ok(()),
    }
}

/// A shown line that ends with an ellipsis matches a longer line.
fn fits(shown: &str, came: &str) -> bool {
    match shown.strip_suffix('…').or_else(|| shown.strip_suffix("...")) {
        Some(begin) => came.starts_with(begin.trim_end()),
        None => shown == came,
    }
}

/// Normalizes what differs on every machine: column widths, dates, the number of event loops and
/// cores, the I/O method. Also numbers, if the rule demands it.
fn plain(line: &str, rule: Rule) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let plain = words.iter().enumerate().map(|(i, word)| match *word {
        "Mon," | "Tue," | "Wed," | "Thu," | "Fri," | "Sat," | "Sun," => "Day,".to_owned(),
        "Jan" | "Feb" | "Mar" | "Apr" | "May" | "Jun" | "Jul" | "Aug" | "Sep" | "Oct" | "Nov"
        | "Dec" => "Month".to_owned(),
        "io=epoll" => "io=io_uring".to_owned(),
        _ if word.starts_with("event_loops=") || word.starts_with("cores=") => numbers(word),
        _ if rule.figures
            || rule.timed && i + 1 == words.len()
            || words.first().is_some_and(|first| first.eq_ignore_ascii_case("date:")) =>
        {
            numbers(word)
        }
        _ => (*word).to_owned(),
    });
    let plain: Vec<String> = plain.collect();
    plain.join(" ")
}

/// A word with `N` for each number in it and for its unit of size or time.
fn numbers(word: &str) -> String {
    let mut plain = String::new();
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_digit() {
            plain.push(letter);
            continue;
        }
        while let Some(more) = letters.peek() {
            if !more.is_ascii_digit() && !matches!(more, '.' | ',') {
                break;
            }
            letters.next();
        }
        let rest: String = letters.clone().take_while(|letter| letter.is_alphabetic()).collect();
        if matches!(rest.as_str(), "us" | "ms" | "s" | "B" | "KB" | "MB" | "GB") {
            letters.nth(rest.len() - 1);
        }
        // A minus before the number is part of it.
        if plain == "-" {
            plain.clear();
        }
        plain.push('N');
    }
    plain
}

/// Every real line must be shown and every shown line real, in order. The exceptions are dots,
/// excerpts and figures.
#[test]
fn outputs_are_compared() {
    const WHOLE: Rule = Rule { figures: false, timed: false, excerpt: false };
    let compare = |shown: &str, came: &str, rule: Rule| {
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        compare(&shown, came, rule).is_ok()
    };
    let came = "one 1\ntwo  2.5\nthree: event_loops=3 io=epoll\n";
    assert!(compare("one 1\ntwo 2.5\nthree: event_loops=2 io=io_uring\n", came, WHOLE));
    assert!(compare("one 1\n...", came, WHOLE) && compare("...\nthree…", came, WHOLE));
    for wrong in
        ["one 1", "one 2\n...", "two 2.5\n...", "...\none 1\none 1\n...", "one 1\ntwo 2.5\nthree"]
    {
        assert!(!compare(wrong, came, WHOLE), "{wrong}");
    }
    assert!(compare("two 2.5", came, Rule { excerpt: true, ..WHOLE }));
    assert!(!compare("two 2.5\none 1", came, Rule { excerpt: true, ..WHOLE }));
    assert!(compare("one 77\ntwo -1,200.0\n...", came, Rule { figures: true, ..WHOLE }));
    assert!(compare("one 1\ntwo 9\n...", came, Rule { timed: true, ..WHOLE }));
    assert!(!compare("one 1\n2 2.5\n...", came, Rule { timed: true, ..WHOLE }));
    let rates = ["in 1.2ms, 3.4MB/s", "in 22.0s, 1GB/s"];
    assert!(compare(rates[0], rates[1], Rule { figures: true, ..WHOLE }));
    assert!(!compare("one N1\n...", came, Rule { figures: true, ..WHOLE }));
    assert!(compare(
        "date: Mon, 23 Nov 2026 07:01:49 GMT",
        "date: Tue, 1 Dec 2027 10:11:12 GMT",
        WHOLE
    ));
}

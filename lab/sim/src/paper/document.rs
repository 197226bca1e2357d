//! A report made of blocks, written as Markdown (with files for pictures and rows) and as one HTML page (all inside).

use larder_bench::result_table::{ResultTable, escape};

/// A part of a report.
#[derive(Debug, Clone)]
pub(super) enum Block {
    /// A heading of the second level.
    Heading(String),
    /// A paragraph; what stands between backticks is code.
    Text(String),
    /// Paragraphs in a list.
    List(Vec<String>),
    /// Rows, which are also a file of this name and `.csv`; long ones are only that.
    Rows { file: &'static str, table: ResultTable, is_shown: bool },
    /// A chart, which is also a file of this name and `.svg`; and its text alternative.
    Picture { file: String, svg: String, alt: String },
}

/// A file to write: its name and its text.
pub type File = (String, String);

/// Every file of a report: rows, pictures, `report.md` and `report.html`.
pub(super) fn files(title: &str, blocks: &[Block]) -> Vec<File> {
    let mut files = Vec::new();
    for block in blocks {
        match block {
            Block::Rows { file, table, .. } => files.push((format!("{file}.csv"), table.csv())),
            Block::Picture { file, svg, .. } => files.push((format!("{file}.svg"), svg.clone())),
            _ => {}
        }
    }
    files.push(("report.md".to_owned(), markdown(title, blocks)));
    files.push(("report.html".to_owned(), html(title, blocks)));
    files
}

fn markdown(title: &str, blocks: &[Block]) -> String {
    let mut text = format!("# {title}\n");
    for block in blocks {
        text.push('\n');
        match block {
            Block::Heading(heading) => text.push_str(&format!("## {heading}\n")),
            Block::Text(words) => text.push_str(&format!("{words}\n")),
            Block::List(items) => {
                items.iter().for_each(|item| text.push_str(&format!("* {item}\n")));
            }
            Block::Rows { file, table, is_shown } => {
                if *is_shown {
                    text.push_str(&format!("{}\n", table.markdown()));
                }
                text.push_str(&format!("[{file}.csv]({file}.csv)\n"));
            }
            Block::Picture { file, alt, .. } => {
                text.push_str(&format!("![{alt}]({file}.svg)\n"));
            }
        }
    }
    text
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#111;background:#fff}h1{line-height:1.2}h2{margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}\
table{border-collapse:collapse;font-size:14px;margin:1rem 0}th,td{padding:.2rem .7rem;text-align:left;\
border-bottom:1px solid #ddd}th{border-bottom:2px solid #888}.n{text-align:right;\
font-variant-numeric:tabular-nums}figure{margin:1rem 0}svg{max-width:100%;height:auto}\
.rows{overflow-x:auto}code{background:#f2f2f2;padding:0 .2em}";

fn html(title: &str, blocks: &[Block]) -> String {
    let title = escape(title);
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    for block in blocks {
        match block {
            Block::Heading(heading) => text.push_str(&format!("<h2>{}</h2>\n", inline(heading))),
            Block::Text(words) => text.push_str(&format!("<p>{}</p>\n", inline(words))),
            Block::List(items) => {
                text.push_str("<ul>\n");
                items.iter().for_each(|item| {
                    text.push_str(&format!("<li>{}</li>\n", inline(item)));
                });
                text.push_str("</ul>\n");
            }
            Block::Rows { file, table, is_shown } => {
                let html = if *is_shown { table.html() } else { String::new() };
                text.push_str(&format!(
                    "<div class=\"rows\">\n{html}<a href=\"{file}.csv\">{file}.csv</a>\n</div>\n"
                ));
            }
            Block::Picture { svg, .. } => text.push_str(&format!("<figure>\n{svg}</figure>\n")),
        }
    }
    text.push_str("</html>\n");
    text
}

/// Escaped, with code between backticks.
fn inline(text: &str) -> String {
    let mut parts = text.split('`');
    let mut html = escape(parts.next().unwrap_or_default());
    // Every second part is code, and a backtick without a partner is one.
    while let Some(code) = parts.next() {
        match parts.next() {
            Some(rest) => {
                html.push_str(&format!("<code>{}</code>{}", escape(code), escape(rest)));
            }
            None => html.push_str(&format!("`{}", escape(code))),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every block is in both forms, rows and pictures are files of their own, and text cannot become a tag.
    #[test]
    fn blocks_are_in_both_forms() {
        let mut table = ResultTable::new(&["a"]);
        table.push(["<b>".into()]);
        let blocks = [
            Block::Heading("One & two".to_owned()),
            Block::Text("run `larder <x>`, it's ` odd".to_owned()),
            Block::List(vec!["item".to_owned()]),
            Block::Rows { file: "rows", table, is_shown: true },
            Block::Picture {
                file: "picture".to_owned(),
                svg: "<svg></svg>\n".to_owned(),
                alt: "a picture".to_owned(),
            },
        ];
        let files = files("T", &blocks);
        let names: Vec<&str> = files.iter().map(|file| file.0.as_str()).collect();
        assert_eq!(names, ["rows.csv", "picture.svg", "report.md", "report.html"]);
        let (markdown, html) = (&files[2].1, &files[3].1);
        for part in ["# T\n", "## One & two", "* item", "![a picture](picture.svg)", "rows.csv"] {
            assert!(markdown.contains(part), "{part}");
        }
        for part in
            ["One &amp; two", "<code>larder &lt;x&gt;</code>, it's ` odd", "&lt;b&gt;", "<svg>"]
        {
            assert!(html.contains(part), "{part}");
        }
    }
}

//! The policy of a scenario.

use larder_dns::policy::{BlockAnswer, Builder, List, Policy, Reason, Views};

use super::script::Rules;

/// Builds the policy from these lines.
pub fn make(rules: &Rules, generation: u32) -> Result<Policy, String> {
    let mut builder = Builder::new(generation, &[9; 16]);
    let mut list = List::default();
    let mut zones: Vec<(Views, String)> = Vec::new();
    for (what, text) in &rules.0 {
        let (views, line) = scope(&builder, text)?;
        let file = (what.as_str(), line.as_bytes());
        let loaded = match what.as_str() {
            "access" => builder.access(text).map(|()| None),
            "view" => builder.assign(text).map(|_| None),
            "exempt" => builder.exempt(text).map(|()| None),
            "version" => builder.version(text).map(|()| None),
            "id" => builder.id(text).map(|()| None),
            "local" => builder.local(views, line).map(|()| None),
            "hosts" => builder.hosts(views, file.0, file.1).map(Some),
            "allow" => builder.allowlist(views, file.0, file.1).map(Some),
            "block" => builder.blocklist(List { views, ..list }, file.0, file.1).map(Some),
            "rpz" => {
                match zones.iter_mut().find(|(others, _)| *others == views) {
                    Some((_, zone)) => *zone = format!("{zone}{line}\n"),
                    None => zones.push((views, format!("{line}\n"))),
                }
                Ok(None)
            }
            "answer" => {
                list.answer = match text.as_str() {
                    "nxdomain" => BlockAnswer::NxDomain,
                    "zero" => BlockAnswer::Zero,
                    "refused" => BlockAnswer::Refused,
                    _ => return Err(format!("{text} is no answer")),
                };
                Ok(None)
            }
            "reason" => {
                list.reason = match text.as_str() {
                    "blocked" => Reason::Operator,
                    "filtered" => Reason::Client,
                    _ => return Err(format!("{text} is no reason")),
                };
                Ok(None)
            }
            _ => return Err(format!("{what} is no part of a policy")),
        };
        let loaded = loaded.map_err(|error| error.to_string())?;
        if let Some((_, problem)) = loaded.unwrap_or_default().problems.first() {
            return Err(format!("{text}: {problem}"));
        }
    }
    for (views, zone) in &zones {
        let loaded = builder.rpz(*views, "rpz.", "rpz", zone.as_bytes());
        if let Some((_, problem)) = loaded.map_err(|error| error.to_string())?.problems.first() {
            return Err(format!("{zone}: {problem}"));
        }
    }
    builder.build().map_err(|error| error.to_string())
}

/// Views, and the rest of the line.
fn scope<'a>(builder: &Builder, text: &'a str) -> Result<(Views, &'a str), String> {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte == b'+';
    let Some((names, rest)) =
        text.split_once(':').filter(|(names, _)| !names.is_empty() && names.bytes().all(is_name))
    else {
        return Ok((Views::ALL, text));
    };
    let numbers: Option<Vec<u16>> = names.split('+').map(|name| builder.find_view(name)).collect();
    let numbers = numbers.ok_or_else(|| format!("{names} are no views"))?;
    Ok((Views::of(&numbers), rest))
}

//! Tool names: what providers accept, and near names for a miss.

use std::fmt::Write as _;

/// Up to this many names are listed in full when a tool is not found, as the reference does;
/// beyond, only the nearest are.
const LIST_ALL: usize = 30;
/// How many near names are listed when there are too many to list.
const LIST_NEAR: usize = 10;

/// Case and punctuation removed; for suggestions only, never for execution.
fn lookup_key(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The one registered name that is meant by `name`, if that is clear.
#[must_use]
pub fn suggest<'a>(name: &str, registered: &'a [String]) -> Option<&'a str> {
    let key = lookup_key(name);
    if key.is_empty() {
        return None;
    }
    let mut same = registered.iter().filter(|candidate| lookup_key(candidate) == key);
    match (same.next(), same.next()) {
        (Some(only), None) => Some(only),
        (Some(_), Some(_)) => None,
        (None, _) => {
            let ranked = nearest(&key, registered, 2);
            match ranked.as_slice() {
                [(score, best)] if *score >= 0.9 => Some(best),
                [(score, best), (second, _)] if *score >= 0.9 && score - second > 0.02 => Some(best),
                _ => None,
            }
        }
    }
}

fn nearest<'a>(key: &str, registered: &'a [String], count: usize) -> Vec<(f64, &'a str)> {
    let mut ranked: Vec<(f64, &str)> = registered
        .iter()
        .map(|candidate| (strsim::jaro_winkler(key, &lookup_key(candidate)), candidate.as_str()))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    ranked.truncate(count);
    ranked
}

/// The text for a call of an unknown tool. Up to 30 registered names it is the reference's.
#[must_use]
pub fn not_found(name: &str, registered: &[String]) -> String {
    let mut text = format!("Error: Tool '{name}' not found.");
    if let Some(meant) = suggest(name, registered) {
        let _ = write!(text, " Did you mean '{meant}'? Tool names must match exactly.");
    }
    if registered.len() <= LIST_ALL {
        let _ = write!(text, " Available: {}", registered.join(", "));
    } else {
        let near: Vec<&str> =
            nearest(&lookup_key(name), registered, LIST_NEAR).into_iter().map(|(_, n)| n).collect();
        let _ = write!(text, " Nearest of {} available: {}", registered.len(), near.join(", "));
    }
    text
}

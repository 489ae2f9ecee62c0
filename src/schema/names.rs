//! Tool names: what providers accept, and near names for a miss.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

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

/// Longest name that providers accept.
const MAX_LENGTH: usize = 64;
/// Hex digits of a hash in a name.
const HASH_LENGTH: usize = 8;

/// A name made of what providers accept, at most 64 long: other characters become underscores,
/// of which runs collapse; a longer name ends in a hash of itself, as in the reference.
#[must_use]
pub fn sanitise(name: &str) -> String {
    limit(collapse(name), MAX_LENGTH)
}

fn collapse(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        if c != '_' || !out.ends_with('_') {
            out.push(c);
        }
    }
    out
}

/// `name` is ASCII here, so that bytes are characters.
fn limit(mut name: String, length: usize) -> String {
    if name.len() > length {
        let hash = hash(name.as_bytes());
        name.truncate(length - HASH_LENGTH - 1);
        name.push('_');
        name.push_str(&hash);
    }
    name
}

fn hash(bytes: &[u8]) -> String {
    let mut hex = format!("{:x}", Sha1::digest(bytes));
    hex.truncate(HASH_LENGTH);
    hex
}

/// The name of a server's tool: `mcp_<server>_<tool>`, sanitised.
#[must_use]
pub fn mcp_tool_name(server: &str, tool: &str) -> String {
    mcp_name(server, "", tool)
}

/// The name of a server's resource as a tool: `mcp_<server>_resource_<name>`, as [`mcp_tool_name`].
#[must_use]
pub fn mcp_resource_name(server: &str, resource: &str) -> String {
    mcp_name(server, "resource_", resource)
}

/// The name of a server's prompt as a tool: `mcp_<server>_prompt_<name>`, as [`mcp_tool_name`].
#[must_use]
pub fn mcp_prompt_name(server: &str, prompt: &str) -> String {
    mcp_name(server, "prompt_", prompt)
}

fn mcp_name(server: &str, kind: &str, raw: &str) -> String {
    let name = sanitise(&format!("mcp_{server}_{kind}{raw}"));
    if raw.chars().any(|c| c.is_ascii_alphanumeric()) {
        return name;
    }
    with_hash(name.trim_end_matches('_'), server, raw)
}

/// `name`, or where it is taken the name with a hash of its origin; never one that is taken.
///
/// `origin` tells it from its namesakes on the same server: the raw name of a tool, the URI of a resource. The
/// hash depends on nothing else, so that it is the same after a restart.
#[must_use]
pub fn unique(name: &str, server: &str, origin: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.to_owned();
    }
    let first = with_hash(name, server, origin);
    if !taken(&first) {
        return first;
    }
    // Twice the same origin, or a name that looks like a hashed one.
    (2..=u32::MAX)
        .map(|count| with_hash(name, server, &format!("{origin}\0{count}")))
        .find(|name| !taken(name))
        .unwrap_or(first)
}

/// `name` with a hash of where it comes from, for one that is taken; at most 64 long.
#[must_use]
pub fn with_hash(name: &str, server: &str, tool: &str) -> String {
    let hash = hash(format!("{server}\0{tool}").as_bytes());
    let mut short: String = name.chars().take(MAX_LENGTH - HASH_LENGTH - 1).collect();
    short.push('_');
    short.push_str(&hash);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_names_are_those_of_the_reference() {
        for (name, wanted) in [
            ("mcp_srv_tool", "mcp_srv_tool"),
            ("mcp_my server_a.b/c", "mcp_my_server_a_b_c"),
            ("mcp_s__x", "mcp_s_x"),
            ("mcp_s_\u{67e5}\u{8be2}_weather-now", "mcp_s_weather-now"),
        ] {
            assert_eq!(sanitise(name), wanted);
        }
        // sha1("mcp_" + "a" * 80)[:8]
        let long = format!("mcp_{}", "a".repeat(80));
        assert_eq!(sanitise(&long), format!("{}_1e232079", &long[..55]));
    }

    #[test]
    fn names_of_foreign_letters_are_valid_stable_and_distinct() {
        let (one, two) = (mcp_tool_name("s", "\u{67e5}\u{8be2}"), mcp_tool_name("s", "\u{5929}\u{6c14}"));
        assert_ne!(one, two);
        assert_eq!(one, mcp_tool_name("s", "\u{67e5}\u{8be2}"));
        assert_ne!(mcp_resource_name("s", "\u{67e5}"), mcp_resource_name("s", "\u{8be2}"));
        assert_eq!(mcp_prompt_name("s", "a b"), "mcp_s_prompt_a_b");
        for name in [one, two, mcp_tool_name("", ""), mcp_tool_name("\u{67e5}", &"\u{8be2}".repeat(200))] {
            assert!(!name.is_empty() && name.len() <= 64 && name.starts_with("mcp_"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{name}");
        }
    }

    #[test]
    fn resources_and_prompts_are_named_as_in_the_reference() {
        assert_eq!(mcp_resource_name("my srv", "a file.txt"), "mcp_my_srv_resource_a_file_txt");
        assert_eq!(mcp_prompt_name("s", "plan"), "mcp_s_prompt_plan");
        // sha1("mcp_s_resource_" + "r" * 80)[:8]
        let long = mcp_resource_name("s", &"r".repeat(80));
        assert_eq!(long, format!("mcp_s_resource_{}_52ea89cc", "r".repeat(40)));
        let foreign = mcp_prompt_name("s", "\u{8ba1}\u{5212}");
        assert!(
            foreign.starts_with("mcp_s_prompt_") && foreign.len() == "mcp_s_prompt_".len() + 8,
            "{foreign}"
        );
        assert_ne!(foreign, mcp_prompt_name("s", "\u{5b8c}\u{6210}"));
    }

    #[test]
    fn no_name_is_given_twice() {
        let mut taken = std::collections::HashSet::new();
        // A tool `resource_x` beside two resources `x`, one of them listed twice.
        let wanted = [
            (mcp_tool_name("s", "resource_x"), "resource_x"),
            (mcp_resource_name("s", "x"), "file:///1"),
            (mcp_resource_name("s", "x"), "file:///2"),
            (mcp_resource_name("s", "x"), "file:///2"),
        ];
        let mut given = Vec::new();
        for (name, origin) in &wanted {
            let name = unique(name, "s", origin, |name| taken.contains(name));
            assert!(taken.insert(name.clone()), "{name} twice");
            given.push(name);
        }
        assert_eq!(given[0], "mcp_s_resource_x");
        assert_eq!(given[1], with_hash("mcp_s_resource_x", "s", "file:///1"));
    }

    #[test]
    fn a_hash_fits_into_the_longest_name() {
        let name = with_hash(&"x".repeat(64), "s", "t");
        assert_eq!(name.len(), 64);
        assert_ne!(name, with_hash(&"x".repeat(64), "s", "u"));
    }
}

//! What becomes of a text that is too long for a model: its head and tail, the rest in a file.

use crate::mcp::artifacts::Kind;

use super::RenderOptions;

/// The part of a preview that shows the end, where tools put their verdicts.
const TAIL: usize = 4;

/// `text` if it is short enough, else its head and tail around a marker that says what is missing.
pub(super) fn fit(text: String, options: &RenderOptions) -> String {
    let Some(limit) = options.max_result_bytes.filter(|limit| text.len() > *limit) else { return text };
    let fate = match &options.artifacts {
        None => "the whole text was not kept: ask for less at once".to_owned(),
        Some(store) => match store.put(Kind::Text, text.as_bytes(), None) {
            Ok(path) => {
                format!("the whole text is stored as {path}: read it there in parts if you need more")
            }
            Err(why) => {
                tracing::warn!(
                    server = &*options.server,
                    tool = &*options.tool,
                    "a long result could not be stored: {why}"
                );
                "the whole text could not be stored: ask for less at once".to_owned()
            }
        },
    };
    preview(&text, limit, &fate)
}

fn preview(text: &str, limit: usize, fate: &str) -> String {
    let marker =
        |left_out: usize| format!("\n[... {left_out} of {} bytes left out here; {fate} ...]\n", text.len());
    // The marker itself counts; of a limit that is smaller nothing is left for the text.
    let room = limit.saturating_sub(marker(text.len()).len());
    let tail = room / TAIL;
    let head = floor_boundary(text, room - tail);
    let from = ceil_boundary(text, text.len() - tail.min(text.len() - head));
    let marker = marker(from - head);
    let mut out = String::with_capacity(head + marker.len() + text.len() - from);
    out.push_str(&text[..head]);
    out.push_str(if head == 0 { marker.trim_start() } else { &marker });
    out.push_str(&text[from..]);
    if from == text.len() {
        out.truncate(out.trim_end().len());
    }
    out
}

/// The last boundary between characters that is not after `at`.
pub(in crate::mcp) fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn ceil_boundary(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_shows_head_and_tail_and_keeps_to_the_limit() {
        let text: String =
            (0..1000).flat_map(|n| ["line ".to_owned(), n.to_string(), "\n".to_owned()]).collect();
        let shown = preview(&text, 400, "FATE");
        assert!(shown.len() <= 400, "{}", shown.len());
        assert!(shown.starts_with("line 0\nline 1\n") && shown.ends_with("line 999\n"), "{shown}");
        let left_out: usize =
            shown.split("[... ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let marker = format!("\n[... {left_out} of {} bytes left out here; FATE ...]\n", text.len());
        assert_eq!(shown.len() - marker.len() + left_out, text.len());
    }

    #[test]
    fn a_limit_below_the_marker_leaves_the_marker() {
        let shown = preview(&"é".repeat(100), 3, "FATE");
        assert_eq!(shown, "[... 200 of 200 bytes left out here; FATE ...]");
    }

    proptest::proptest! {
        #[test]
        fn texts_are_cut_between_characters(text in "(a|é|😀|\n){0,200}", limit in 0_usize..400) {
            if text.len() > limit {
                let shown = preview(&text, limit, "x");
                proptest::prop_assert!(shown.len() <= limit.max(60));
            }
        }
    }
}

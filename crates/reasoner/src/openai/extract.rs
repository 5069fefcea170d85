//! Finds the one JSON object in what a model said.
//!
//! Promises: linear in the text; a text with two objects, half of one, or anything
//! else is refused, never guessed at. Must never know: what a plan is.

use detent_protocol::{Code, Fault};
use serde_json::Value;

fn malformed(message: impl Into<String>, at: impl Into<String>) -> Fault {
    Fault::new(Code::ModelMalformed, message).at(at)
}

/// The JSON object that `content` is, or that stands alone in a code fence or prose.
///
/// Fails with [`Code::ModelMalformed`]; its place is a byte of the content, or the
/// line and column within the object.
pub(crate) fn one_object(content: &str) -> Result<Value, Fault> {
    let text = content.trim();
    if text.is_empty() {
        return Err(malformed("the answer is empty", "/content"));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(value) => {
            let kind = detent_protocol::json::type_name(&value);
            let message = format!("the answer is a JSON {kind}, not one object");
            Err(malformed(message, "/content"))
        }
        Err(_) => embedded(text),
    }
}

fn embedded(text: &str) -> Result<Value, Fault> {
    let (from, to) = only_region(text)?;
    if text[..from].trim_end().ends_with('[') {
        let message = "the object stands in an array, not alone";
        return Err(malformed(message, place(from)));
    }
    if text[..from].contains('}') || text[to..].contains('}') {
        let message = "the answer has a closing brace too many";
        return Err(malformed(message, place(to)));
    }
    serde_json::from_str(&text[from..to]).map_err(|e| {
        let at = format!("{}, line {} column {}", place(from), e.line(), e.column());
        let message = format!("what stands in braces is not JSON: {}", kind(&e));
        malformed(message, at)
    })
}

/// The kind of mistake, without what was found there: it may be anything.
fn kind(e: &serde_json::Error) -> &'static str {
    match e.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        _ => "a syntax error",
    }
}

fn place(byte: usize) -> String {
    format!("byte {byte} of the content")
}

/// The only balanced top-level `{…}` of the text.
fn only_region(text: &str) -> Result<(usize, usize), Fault> {
    let mut found = None;
    let mut from = 0;
    while let Some(start) = text[from..].find('{').map(|i| i + from) {
        let Some(end) = region_end(text, start) else {
            let message = "the answer ends inside a JSON object";
            return Err(malformed(message, place(start)));
        };
        if found.is_some() {
            let message = "the answer holds more than one JSON object";
            return Err(malformed(message, place(start)));
        }
        found = Some((start, end));
        from = end;
    }
    found.ok_or_else(|| malformed("the answer holds no JSON object", "/content"))
}

/// One past the brace that closes the one at `start`; braces in strings don't count.
fn region_end(text: &str, start: usize) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (i, b) in text.bytes().enumerate().skip(start) {
        match (in_string, b) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{') => depth += 1,
            (false, b'}') => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_object_is_found() {
        let want = json!({"a": {"b": "} \" {"}});
        let text = want.to_string();
        for content in [
            text.clone(),
            format!("\n {text} \n"),
            format!("```json\n{text}\n```"),
            format!("Sure! \"Here\" it is:\n```\n{text}\n```\nDone [1]."),
            format!("é {text} ü"),
        ] {
            assert_eq!(one_object(&content).unwrap(), want, "{content}");
        }
    }

    #[test]
    fn anything_else_is_malformed_with_a_place() {
        for content in [
            "",
            "  ",
            "null",
            "[]",
            "\"{}\"",
            "12",
            "no plan today",
            "{\"a\": 1",
            "{\"a\": 1}}{",
            "{\"a\": 1}}",
            "} {\"a\": 1}",
            "{} {}",
            "{\"a\":1} or {\"a\":2}",
            "[{\"a\":1}, 2",
            "here: [{\"a\":1}]",
            "{a: 1}",
            "use {x}: {\"a\": 1}",
            "{\"a\": \"",
            "{\"a\": \"\\\"}",
            "text {\"a\": 01} text",
        ] {
            let fault = one_object(content).unwrap_err();
            assert_eq!(fault.code, Code::ModelMalformed, "{content}");
            assert!(fault.at.is_some(), "{content}");
        }
    }

    #[test]
    fn depth_bombs_are_refused() {
        let bomb = "{\"a\":".repeat(100_000) + &"}".repeat(100_000);
        assert_eq!(one_object(&bomb).unwrap_err().code, Code::ModelMalformed);
        let open = "{".repeat(100_000);
        assert_eq!(one_object(&open).unwrap_err().code, Code::ModelMalformed);
    }
}

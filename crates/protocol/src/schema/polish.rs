//! Makes schemas fit for readers who have no Rust before them.

use schemars::Schema;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::Value;

/// Mends descriptions and bounds in `schema` and everything below it.
pub(super) fn polish(schema: &mut Schema) {
    Polish.transform(schema);
}

struct Polish;

impl Transform for Polish {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(Value::String(text)) = schema.get("description") {
            let plain = plain(text);
            schema.insert("description".into(), plain.into());
        }
        bounds(schema);
        transform_subschemas(self, schema);
    }
}

/// Bounds instead of the names of Rust's integers, which other tools refuse as formats.
fn bounds(schema: &mut Schema) {
    let max = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => Some(u64::from(u8::MAX)),
        Some("uint16") => Some(u64::from(u16::MAX)),
        Some("uint32") => Some(u64::from(u32::MAX)),
        // Most readers of JSON can't hold its bound.
        Some("uint64") => None,
        _ => return,
    };
    schema.remove("format");
    if let Some(max) = max
        && schema.get("maximum").is_none()
    {
        schema.insert("maximum".into(), max.into());
    }
}

/// Without line breaks within a paragraph, and without the brackets of links into the
/// code: ``[`Submit::key`]`` is `` `key` `` to others.
fn plain(text: &str) -> String {
    let paragraphs = text.split("\n\n");
    let joined: Vec<_> = paragraphs
        .map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    unlinked(&joined.join("\n\n"))
}

fn unlinked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, tail)) = after.split_once("`]") else {
            break;
        };
        let last = name.rsplit("::").next().unwrap_or(name);
        out += before;
        out += &format!("`{last}`");
        rest = tail;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::json_schema;

    #[test]
    fn links_and_line_breaks_go() {
        let text = "See [`crate::goal::Submit`]\nor [`KEY`].\n\nNot [`this.";
        assert_eq!(plain(text), "See `Submit` or `KEY`.\n\nNot [`this.");
    }

    #[test]
    fn integers_have_bounds_at_any_depth_and_other_formats_stay() {
        let mut schema = json_schema!({
            "properties": {"format": {"type": "integer", "format": "uint32"}},
            "items": {"format": "uint64"},
            "$defs": {"A": {"format": "uuid", "description": "a\nb"}},
        });
        polish(&mut schema);
        let wanted = json_schema!({
            "properties": {"format": {"type": "integer", "maximum": 4_294_967_295_u32}},
            "items": {},
            "$defs": {"A": {"format": "uuid", "description": "a b"}},
        });
        assert_eq!(schema, wanted);
    }
}

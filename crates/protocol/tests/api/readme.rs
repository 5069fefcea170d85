//! The folder's table of contents.

use detent_protocol::schema::{CHANNELS, Form, Way, names, shape_of};

const HEAD: &str = "\
# Machine-readable API

Made from the Rust types; `cargo xtask docs` writes it, and a test holds it against the code and \
against every message that is kept as a sample. [The protocol](../protocol.md) says the same in words, \
[Publish goals](../../how-to/publish-goals.md) shows it at work.

- [`asyncapi.yaml`](asyncapi.yaml): AsyncAPI 3.0.0; subjects, who says what on them, and the answers.
- [`schemas/`](schemas): JSON Schema, draft 2020-12. Each file stands alone. Nothing is used that \
draft 07 understands otherwise.

A message is checked whole, with its envelope; an answer as `{\"ok\": …}` or `{\"fault\": …}`. The \
schemas are about JSON; what is msgpack on the wire says the same with the same names, and bytes \
(only in the answer to an export) are arrays of numbers in JSON. Messages that nodes read may leave \
out what has a default. Messages that nodes say may get new fields within a version: readers ignore \
what they do not know.

";

/// The page.
pub(crate) fn text() -> String {
    let mut text = HEAD.to_owned();
    for (title, internal) in [
        ("For publishers and operators", false),
        ("Between actors", true),
    ] {
        text +=
            &format!("## {title}\n\n| subject | kind | messages | answers |\n|---|---|---|---|\n");
        for channel in CHANNELS.iter().filter(|c| c.internal == internal) {
            let kind = match channel.way {
                Way::Request => "request",
                Way::Durable => "durable",
                Way::Event => "event",
            };
            let messages = channel.exchanges.iter().map(|e| e.message);
            let replies = channel.exchanges.iter().filter_map(|e| e.reply);
            let address = channel.address;
            let (messages, replies) = (list(messages), list(replies));
            text += &format!("| `{address}` | {kind} | {messages} | {replies} |\n");
        }
        text.push('\n');
    }
    text += "Subjects between actors are listed for permissions and for debugging; they are msgpack \
        only, and no part of what publishers may rely on.\n\n";
    let parts = names().filter(|n| shape_of(n).is_some_and(|s| s.form == Form::Part));
    text + &format!("## Parts\n\n{}\n", list(parts))
}

fn list(names: impl Iterator<Item = &'static str>) -> String {
    let links: Vec<_> = names.map(|n| format!("[{n}](schemas/{n}.json)")).collect();
    links.join(", ")
}

//! Schemas of the types whose form on the wire is not their form in memory.

use crate::error::Code;
use crate::ids::{AgentName, GoalId, NodeId, QuestionId, StepId, TenantId, ToolName};
use crate::json::Digest;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

macro_rules! text {
    ($($t:ty, $name:literal, $about:literal, $pattern:literal;)*) => {$(
        impl JsonSchema for $t {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "description": $about, "pattern": $pattern})
            }
        }
    )*};
}

text! {
    TenantId, "TenantId", "Whose goals; a set-up with one tenant uses `default`.", "^[A-Za-z0-9_-]{1,64}$";
    AgentName, "AgentName", "Name of an agent.", "^[A-Za-z0-9_-]{1,64}$";
    ToolName, "ToolName", "Name of a tool.", "^[A-Za-z0-9_-]{1,64}$";
    StepId, "StepId", "Id of a step; never used twice within a goal.", "^[A-Za-z0-9_-]{1,64}$";
    NodeId, "NodeId", "Name of a node.", "^[A-Za-z0-9_-]{1,64}$";
    QuestionId, "QuestionId", "Id of a question.", "^[A-Za-z0-9_-]{1,64}$";
    GoalId, "GoalId", "A goal: a UUID in lower case with hyphens, as in subjects.",
        "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
    Digest, "Digest", "SHA-256, 64 hex digits.", "^[0-9a-f]{64}$";
}

impl JsonSchema for Code {
    fn schema_name() -> Cow<'static, str> {
        "Code".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        json_schema!({
            "type": "string",
            "description": "An error code; docs/reference/errors has a page for each. A later version may say one that is not in this list.",
            "enum": codes,
        })
    }
}

//! Everything that has a schema, by name.

use super::polish::polish;
use crate::envelope::{Message, Reply};
use crate::error::Fault;
use crate::goal::{Accepted, Submit};
use crate::messages::{
    Alert, Answer, AttemptSealed, Control, Controlled, GoalEvent, GoalSealed, Observe, PlanAnswer,
    PlanRequest, Query, Refused, SealAttempt, SealGoal, Seen, ToolAnswer, ToolCall,
};
use crate::record::Question;
use crate::result::{GoalResult, ResultMessage};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema, json_schema};
use serde_json::{Map, Value, json};

/// How something stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In an envelope: `{kind, v, body}`.
    Message,
    /// As the answer to a request: `{"ok": …}` or `{"fault": …}`.
    Reply,
    /// Within these.
    Part,
}

/// Something that is said, and its schema.
#[derive(Debug)]
pub struct Shape {
    /// Name of the schema. Of a message its kind, but for `asked`, which is an `event`.
    pub name: &'static str,
    /// How it stands on the wire.
    pub form: Form,
    build: fn() -> Schema,
}

/// Everything that has a schema.
const SHAPES: &[Shape] = &[
    Shape::read::<Submit>(),
    Shape::reply::<Accepted>("accepted"),
    Shape::read::<Control>(),
    Shape::reply::<Controlled>("controlled"),
    Shape::read::<Query>(),
    Shape::reply::<Answer>("answer"),
    Shape::said::<Refused>(),
    Shape::said::<ResultMessage>(),
    Shape::said::<GoalEvent>(),
    Shape::new("asked", Form::Message, asked),
    Shape::said::<Alert>(),
    Shape::said::<PlanRequest>(),
    Shape::reply::<PlanAnswer>("plan_answer"),
    Shape::said::<ToolCall>(),
    Shape::reply::<ToolAnswer>("tool_outcome"),
    Shape::said::<SealAttempt>(),
    Shape::reply::<AttemptSealed>("attempt_sealed"),
    Shape::said::<SealGoal>(),
    Shape::reply::<GoalSealed>("goal_sealed"),
    Shape::said::<Observe>(),
    Shape::reply::<Seen>("observation"),
    Shape::new("envelope", Form::Part, any_envelope),
    Shape::new("reply", Form::Part, whole::<Reply<Value>>),
    Shape::new("fault", Form::Part, whole::<Fault>),
    Shape::new("goal_result", Form::Part, whole::<GoalResult>),
    Shape::new("question", Form::Part, whole::<Question>),
];

/// Names of everything that has a schema.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|shape| shape.name)
}

/// What is said under this name; `None` where nothing is.
pub fn shape_of(name: &str) -> Option<&'static Shape> {
    SHAPES.iter().find(|shape| shape.name == name)
}

impl Shape {
    const fn new(name: &'static str, form: Form, build: fn() -> Schema) -> Self {
        Self { name, form, build }
    }
    /// A message that nodes read.
    const fn read<T: Message + JsonSchema>() -> Self {
        Self::new(T::KIND, Form::Message, || enveloped::<T>(reads()))
    }
    /// A message that nodes say.
    const fn said<T: Message + JsonSchema>() -> Self {
        Self::new(T::KIND, Form::Message, || enveloped::<T>(says()))
    }
    const fn reply<T: JsonSchema>(name: &'static str) -> Self {
        Self::new(name, Form::Reply, replied::<T>)
    }

    /// Its schema, draft 2020-12.
    pub fn schema(&self) -> Value {
        let mut schema = (self.build)();
        let draft = "https://json-schema.org/draft/2020-12/schema";
        schema.insert("$schema".into(), draft.into());
        schema.insert("title".into(), self.name.into());
        polish(&mut schema);
        schema.into()
    }
}

/// Fields with a default may be left out.
fn reads() -> SchemaGenerator {
    settings().for_deserialize().into_generator()
}

/// Fields that are always written are always there.
fn says() -> SchemaGenerator {
    settings().for_serialize().into_generator()
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12()
}

fn whole<T: JsonSchema>() -> Schema {
    says().into_root_schema_for::<T>()
}

fn replied<T: JsonSchema>() -> Schema {
    let mut schema = whole::<Reply<T>>();
    let own = format!("/$defs/{}/description", T::schema_name());
    if let Some(about) = schema.as_value().pointer(&own).cloned() {
        schema.insert("description".into(), about);
    }
    schema
}

fn enveloped<T: Message + JsonSchema>(mut generator: SchemaGenerator) -> Schema {
    let body = generator.subschema_for::<T>();
    let definitions = generator.take_definitions(true);
    let own = definitions.get(T::schema_name().as_ref());
    let about = own.and_then(|own| own.get("description")).cloned();
    let mut schema = envelope(
        json!({"const": T::KIND}),
        json!({"const": T::VERSION}),
        &body,
    );
    if let Some(about) = about {
        schema.insert("description".into(), about);
    }
    define(&mut schema, definitions);
    schema
}

fn any_envelope() -> Schema {
    let kind = json!({"type": "string", "description": "Name of the message type."});
    let v = json!({"type": "integer", "minimum": 0, "maximum": u16::MAX,
        "description": "Its version. A reader of an older one takes no message of a newer."});
    let body = json_schema!({"description": "The message."});
    let mut schema = envelope(kind, v, &body);
    let about = "The envelope of every message. Fields that a reader does not know it ignores.";
    schema.insert("description".into(), about.into());
    schema
}

fn envelope(kind: Value, v: Value, body: &Schema) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {"kind": kind, "v": v, "body": body},
        "required": ["kind", "v", "body"],
    })
}

/// This text and no other.
fn one(text: &str) -> Value {
    json!({"type": "string", "const": text})
}

fn define(schema: &mut Schema, definitions: Map<String, Value>) {
    schema.insert("$defs".into(), definitions.into());
}

/// An event of kind `asked`, whose details are the question.
fn asked() -> Schema {
    let mut generator = says();
    let body = generator.subschema_for::<GoalEvent>();
    let question = generator.subschema_for::<Question>();
    let mut definitions = generator.take_definitions(true);
    let name = GoalEvent::schema_name();
    let event = definitions.get_mut(name.as_ref());
    if let Some(properties) = event.and_then(|event| event.get_mut("properties")) {
        properties["kind"] = one("asked");
        properties["detail"] = question.into();
    }
    let v = json!({"const": GoalEvent::VERSION});
    let mut schema = envelope(one(GoalEvent::KIND), v, &body);
    let about = "A question to people: the event `asked`, with the question as its details.";
    schema.insert("description".into(), about.into());
    define(&mut schema, definitions);
    schema
}

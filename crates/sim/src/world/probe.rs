//! The probe that looks at the simulated world: the authority, never a replica.

use super::{EffectKey, World};
use crate::bus::{Port, lock};
use async_trait::async_trait;
use detent_observer::{Look, Probe, ProbeContext};
use detent_protocol::{Code, Fault, ToolName};
use serde_json::{Value, json};
use std::sync::Arc;

/// Looks effects up by tool and item, for the goal that asks. Goes by the name of the
/// `sql` probe, whose form of an answer it uses.
pub struct WorldProbe {
    world: Arc<World>,
    port: Port,
}

impl WorldProbe {
    /// The probe of one life of a node.
    pub fn new(world: Arc<World>, port: Port) -> Self {
        Self { world, port }
    }
}

fn unavailable(text: &str) -> Fault {
    Fault::new(Code::ObservationUnavailable, text)
}

#[async_trait]
impl Probe for WorldProbe {
    fn kind(&self) -> &str {
        "sql"
    }

    async fn look(&self, params: &Value, cx: &ProbeContext) -> Result<Look, Fault> {
        self.port.point("look").await;
        self.world.chance().delay_us(200, 20_000).await;
        if self.world.probes_away() {
            return Err(unavailable("the system that is asked is down"));
        }
        let tool = params["tool"].as_str().and_then(|t| ToolName::new(t).ok());
        let item = params["item"].as_str();
        let (Some(tool), Some(item)) = (tool, item) else {
            return Err(unavailable("takes tool and item"));
        };
        let what = format!("{tool} {item}");
        let key = EffectKey {
            goal: cx.goal,
            tool,
            item: item.to_owned(),
        };
        let seen = self.world.seen(&key);
        let rows = seen["row_count"].as_u64().unwrap_or_default();
        let text = format!("look {} {} {what}: {rows}", cx.goal, cx.step);
        self.world.fabric.trace.say(text);
        // What was seen is on its way to whoever decides.
        self.world.chance().delay_us(200, 20_000).await;
        self.port.point("looked").await;
        Ok(Look::new(what, seen))
    }
}

impl World {
    /// An effect as a table of the system that keeps it.
    fn seen(&self, key: &EffectKey) -> Value {
        let state = lock(&self.state);
        match state.effects.get(key).filter(|row| row.applied > 0) {
            Some(row) => json!({"row_count": row.applied, "rows": [row.output]}),
            None => json!({"row_count": 0, "rows": []}),
        }
    }
}

//! The environment that a program is given: complete, nothing is inherited.

use super::config::{RunConfig, wrong};
use crate::kind::Invocation;
use detent_protocol::effect::Effect;
use detent_protocol::{Code, Fault};
use std::collections::BTreeMap;
use std::path::Path;

/// Where programs are looked for when the node itself has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

pub(super) struct Environment<'a> {
    pub(super) config_dir: &'a Path,
    pub(super) data_dir: &'a Path,
    pub(super) node: &'a BTreeMap<String, String>,
}

impl Environment<'_> {
    pub(super) fn of(
        &self,
        call: &Invocation,
        run: &RunConfig,
        work_dir: &Path,
    ) -> Result<BTreeMap<String, String>, Fault> {
        let home = utf8(work_dir)?;
        let mut env = run.env.clone();
        // What the entry sets wins, except over what Detent tells the tool.
        let usual = [("LANG", "C.UTF-8"), ("HOME", home), ("TMPDIR", home)];
        for (name, value) in usual {
            env.entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
        env.insert("PATH".to_owned(), self.path(run));
        env.extend(self.secrets(run)?);
        let told = self.told(call)?;
        env.extend(told.into_iter().map(|(k, v)| (k.to_owned(), v)));
        Ok(env)
    }

    fn told(&self, call: &Invocation) -> Result<Vec<(&'static str, String)>, Fault> {
        let mut told = vec![
            ("DETENT_TENANT", call.tenant.to_string()),
            ("DETENT_GOAL", call.goal.to_string()),
            ("DETENT_STEP", call.step.to_string()),
            ("DETENT_ATTEMPT", call.attempt.to_string()),
            ("DETENT_CONFIG_DIR", utf8(self.config_dir)?.to_owned()),
            ("DETENT_DATA_DIR", utf8(self.data_dir)?.to_owned()),
        ];
        if let Some(identity) = call.identity {
            told.push(("DETENT_IDEMPOTENCY_KEY", identity.to_string()));
        }
        if call.tool.def.effect == Effect::Fenced {
            told.push(("DETENT_FENCING_TOKEN", call.fencing_token.to_string()));
        }
        Ok(told)
    }

    /// Where programs are looked for.
    pub(super) fn path(&self, run: &RunConfig) -> String {
        let own = run.env.get("PATH").or_else(|| self.node.get("PATH"));
        own.map_or(PATH_DEFAULT, String::as_str).to_owned()
    }

    /// What `env_from` takes from the node's environment.
    pub(super) fn secrets(&self, run: &RunConfig) -> Result<BTreeMap<String, String>, Fault> {
        let take = |name: &String| match self.node.get(name) {
            Some(value) => Ok((name.clone(), value.clone())),
            None => {
                let message = format!("the node's environment has no variable {name}");
                Err(Fault::new(Code::ToolUnavailable, message).at("run.env_from"))
            }
        };
        run.env_from.iter().map(take).collect()
    }
}

fn utf8(path: &Path) -> Result<&str, Fault> {
    path.to_str()
        .ok_or_else(|| wrong("node", format!("{} is not UTF-8", path.display())))
}

//! What is checked of a request before anything of it is kept.
//!
//! What is said is kept in the journal, so it has a bound (I8) and holds no secret (I12).

use super::Shared;
use detent_protocol::goal::Submit;
use detent_protocol::messages::{Control, Verb};
use detent_protocol::{Code, Fault, TenantId, json};
use serde_json::Value;

/// Longest name of who sends a control message, reason of a cancel, or choice; bytes.
const SAID_BYTES_MAX: usize = 256;
/// Deepest nesting of an input and of a patch. The reader of records stops at 128
/// levels, and an input travels inside records that nest it further.
const DEPTH_MAX: usize = 32;
/// Largest patch of an amendment, as JSON, bytes.
const PATCH_BYTES_MAX: usize = 64 * 1024;

/// Permissions are given by subject, so the subject and the message must agree: on the
/// tenant, and on `last`, the subject's last token, given with its place in the message.
pub(super) fn addressed(
    subject: &str,
    tenant: &TenantId,
    last: Option<(&str, &str)>,
) -> Result<(), Fault> {
    let mut tokens = subject.split('.').skip(1);
    let wrong = |at: &str| {
        let message = "the subject that the request came on names another one";
        Err(Fault::new(Code::InputInvalid, message).at(at))
    };
    if tokens.next() != Some(tenant.as_str()) {
        return wrong("/tenant");
    }
    match last {
        Some((token, at)) if tokens.nth(1) != Some(token) => wrong(at),
        _ => Ok(()),
    }
}

/// Checks of a submission what its contract does not say.
pub(super) fn submission(shared: &Shared, submit: &Submit) -> Result<(), Fault> {
    shallow(&submit.input, "/input")?;
    no_secret(shared, &submit.input, "/input")?;
    match &submit.key {
        Some(key) => no_secret(shared, &Value::from(key.key.as_str()), "/key/key"),
        None => Ok(()),
    }
}

/// Checks a control message; masks secrets where masking changes nothing but words.
pub(super) fn control(shared: &Shared, control: &mut Control) -> Result<(), Fault> {
    let redactor = &shared.options.redactor;
    short(&control.by, "/by")?;
    control.by = redactor.text(&control.by);
    match &mut control.verb {
        Verb::Amend { patch } => {
            shallow(patch, "/patch")?;
            let bytes = json::size_bytes(patch);
            if bytes > PATCH_BYTES_MAX {
                let message = format!("{bytes} bytes; a patch has at most {PATCH_BYTES_MAX}");
                return Err(Fault::new(Code::InputTooLarge, message).at("/patch"));
            }
            no_secret(shared, patch, "/patch")
        }
        Verb::Cancel { reason } => {
            short(reason, "/verb/reason")?;
            *reason = redactor.text(reason);
            Ok(())
        }
        Verb::Answer { choice, .. } => {
            short(choice, "/verb/choice")?;
            *choice = redactor.text(choice);
            Ok(())
        }
        Verb::Pause | Verb::Resume => Ok(()),
    }
}

/// Can this be a token of a subject?
pub(super) fn is_name(text: &str) -> bool {
    detent_protocol::QuestionId::new(text).is_ok()
}

fn short(text: &str, at: &str) -> Result<(), Fault> {
    if text.len() <= SAID_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{} bytes; at most {SAID_BYTES_MAX}", text.len());
    Err(Fault::new(Code::InputInvalid, message).at(at))
}

fn shallow(value: &Value, at: &str) -> Result<(), Fault> {
    let levels = json::depth(value);
    if levels <= DEPTH_MAX {
        return Ok(());
    }
    let message = format!("nested {levels} levels deep; at most {DEPTH_MAX}");
    Err(Fault::new(Code::InputInvalid, message).at(at))
}

/// Masking a secret in silence would give the tool something else than was sent.
fn no_secret(shared: &Shared, value: &Value, at: &str) -> Result<(), Fault> {
    let Some(place) = shared.options.redactor.find(value) else {
        return Ok(());
    };
    let message =
        "this looks like a secret, and goals are kept; give tools their secrets by `env_from`";
    Err(Fault::new(Code::InputInvalid, message).at(format!("{at}{place}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_comes_on_the_subject_of_what_it_is_about() {
        let tenant = TenantId::new("t").unwrap();
        let at = |subject: &str, last| {
            let checked = addressed(subject, &tenant, last);
            checked.map_err(|f| f.at.unwrap_or_default()).err()
        };
        let agent = Some(("a", "/agent"));
        assert_eq!(at("detent.t.submit.a", agent), None);
        assert_eq!(at("detent.u.submit.a", agent).as_deref(), Some("/tenant"));
        assert_eq!(at("detent.t.submit.b", agent).as_deref(), Some("/agent"));
        assert_eq!(at("detent.t.query", None), None);
        assert_eq!(at("detent.u.query", None).as_deref(), Some("/tenant"));
    }
}

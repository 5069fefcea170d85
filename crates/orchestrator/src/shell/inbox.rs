//! Durable messages: goals handed in without waiting, and control messages that are kept.
//!
//! Promises: a message is done with only when what it asks for is in the journal, or it
//! was refused; then its sender is told on the `refused` subject, and a goal that was
//! refused stays as a dead letter. A message may come twice: a goal's idempotency key
//! and the state of the goal make the second one harmless.

use super::{Shared, check, intake};
use async_trait::async_trait;
use bytes::Bytes;
use detent_bus::{Dealer, Delivery, Disposal, Queue, Served};
use detent_protocol::envelope::{expect_either, is_json, seal, seal_json};
use detent_protocol::goal::Submit;
use detent_protocol::ids::TenantId;
use detent_protocol::messages::{Control, Refused};
use detent_protocol::{Code, Fault, subject};
use std::sync::Arc;
use std::time::Duration;

/// Messages of one queue in hand at one time.
const IN_HAND_MAX: usize = 256;
/// Wait before a message is tried again, where its fault names none, milliseconds.
const LATER_MS: u64 = 1_000;

/// Takes from both queues, where the bus has them.
pub(super) async fn take(shared: &Arc<Shared>) -> Result<Vec<Served>, detent_bus::BusError> {
    let Some(inbox) = shared.bus.inbox.clone() else {
        return Ok(Vec::new());
    };
    let goals = Arc::new(Goals(shared.clone()));
    let controls = Arc::new(Controls(shared.clone()));
    Ok(vec![
        inbox.take(Queue::Intake, IN_HAND_MAX, goals).await?,
        inbox.take(Queue::Control, IN_HAND_MAX, controls).await?,
    ])
}

struct Goals(Arc<Shared>);

#[async_trait]
impl Dealer for Goals {
    async fn deal(&self, delivery: Delivery) -> Disposal {
        let shared = &self.0;
        let Delivery {
            subject, payload, ..
        } = delivery;
        let submit = match expect_either::<Submit>(&payload) {
            Ok(submit) => submit,
            Err(fault) => return Disposal::Dead(fault),
        };
        let taken = match submit.key {
            Some(_) => intake::submit(shared, &subject, &payload).await,
            // Without one a second delivery would be a second goal.
            None => Err(keyless()),
        };
        shared.hooks.intake(taken.as_ref().map(|_| ()));
        match taken {
            Ok(_) => Disposal::Done,
            Err(fault) if fault.code.retryable() => later(&fault),
            Err(fault) => {
                let name = submit.key.as_ref().map_or("", |key| key.key.as_str());
                tell_refused(shared, &submit.tenant, name, &payload, &fault).await;
                Disposal::Dead(fault)
            }
        }
    }
}

fn keyless() -> Fault {
    let message = "a goal that is handed in without waiting for an answer needs a key";
    Fault::new(Code::InputInvalid, message).at("/key")
}

struct Controls(Arc<Shared>);

#[async_trait]
impl Dealer for Controls {
    async fn deal(&self, delivery: Delivery) -> Disposal {
        let Delivery {
            subject, payload, ..
        } = delivery;
        let control = match expect_either::<Control>(&payload) {
            Ok(control) => control,
            Err(fault) => return Disposal::Dead(fault),
        };
        match intake::steer(&self.0, &subject, &payload).await {
            Ok(_) => Disposal::Done,
            Err(fault) if fault.code.retryable() => later(&fault),
            Err(fault) => {
                let name = control.goal.to_string();
                tell_refused(&self.0, &control.tenant, &name, &payload, &fault).await;
                // It says what was wanted of a goal at that moment; later it is worth
                // nothing, and its sender was told.
                Disposal::Done
            }
        }
    }
}

fn later(fault: &Fault) -> Disposal {
    Disposal::Later(Duration::from_millis(
        fault.retry_after_ms.unwrap_or(LATER_MS),
    ))
}

/// Tells the sender, in the form of what it sent.
async fn tell_refused(
    shared: &Shared,
    tenant: &TenantId,
    name: &str,
    request: &Bytes,
    fault: &Fault,
) {
    let refused = Refused {
        tenant: tenant.clone(),
        name: name.to_owned(),
        fault: fault.clone(),
    };
    // A key that is no name can't be part of a subject.
    let Some(subject) = check::is_name(name).then(|| subject::refused(tenant, name)) else {
        return;
    };
    let sealed = match is_json(request) {
        true => seal_json(&refused),
        false => seal(&refused),
    };
    let Ok(payload) = sealed else { return };
    if let Err(error) = shared.bus.messages.publish(&subject, payload).await {
        tracing::debug!(%subject, %error, "not published");
    }
}

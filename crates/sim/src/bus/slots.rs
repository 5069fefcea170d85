//! Effect slots in memory, with unclear answers.

use super::{Port, lock};
use async_trait::async_trait;
use detent_bus::{SlotKey, Slots};
use detent_protocol::effect::SlotMark;
use detent_protocol::{Code, Fault};
use std::time::Duration;

#[async_trait]
impl Slots for Port {
    async fn win(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault> {
        self.point("slot").await;
        self.travel().await;
        self.fabric.check_journal()?;
        if self.chance().fault(|f| f.slot_unclear) {
            return Err(self.unclear_slot(key, mark).await);
        }
        let there = self.write(key, mark);
        self.point("slot written").await;
        self.travel().await;
        there
    }

    async fn read(&self, key: &SlotKey) -> Result<Option<SlotMark>, Fault> {
        self.point("slot read").await;
        self.travel().await;
        self.fabric.check_journal()?;
        Ok(lock(&self.fabric.slots).get(key).cloned())
    }
}

impl Port {
    fn write(&self, key: &SlotKey, mark: SlotMark) -> Result<SlotMark, Fault> {
        if lock(&self.fabric.journal).is_forgotten(&key.goal) {
            let text = format!("slot {} was forgotten", key.goal.goal);
            self.fabric.trace.say(&text);
            return Err(Fault::new(Code::OwnerFenced, text));
        }
        let mut slots = lock(&self.fabric.slots);
        let there = slots.entry(key.clone()).or_insert(mark).clone();
        drop(slots);
        let (goal, step, attempt) = (key.goal.goal, &key.step, key.attempt);
        let text = format!("slot {goal} {step}/{attempt}: {there:?}");
        self.fabric.trace.say(text);
        Ok(there)
    }

    async fn unclear_slot(&self, key: &SlotKey, mark: SlotMark) -> Fault {
        match self.chance().below(3) {
            0 => {}
            1 => drop(self.write(key, mark)),
            _ => {
                let (port, key) = (self.clone(), key.clone());
                let wait = Duration::from_millis(self.chance().between(10, 4_000));
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let _ = port.write(&key, mark);
                });
            }
        }
        self.point("slot unclear").await;
        self.travel().await;
        Fault::new(Code::JournalUnknown, "the slot's answer was lost")
    }
}

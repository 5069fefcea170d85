//! Puts the parts together.

use super::blobs::{self, NatsBlobs};
use super::handle::NatsHandle;
use super::inbox::{self, NatsInbox};
use super::journal::NatsJournal;
use super::leases::{self, NatsLeases};
use super::messages::NatsMessages;
use super::slots::NatsSlots;
use super::streams::{self, SetUp};
use super::{Broker, NatsOptions, layout};
use crate::{Bus, Messages};
use async_nats::jetstream::stream::Config;
use detent_protocol::Fault;
use std::sync::Arc;

/// A bus on a broker.
#[derive(Clone)]
pub struct NatsBus {
    /// The bus.
    pub bus: Bus,
    /// The connection's state, and checks.
    pub handle: NatsHandle,
}

impl NatsBus {
    /// Connects, makes the streams that are missing (where `options.create` allows it)
    /// and checks those that stand.
    ///
    /// The connection ends with the last clone of what is returned; services,
    /// subscriptions and takers end with the bus.
    ///
    /// # Errors
    /// `BROKER_UNREACHABLE` after `options.connect_timeout`; at once `BROKER_REFUSED` for
    /// wrong credentials, TLS, missing permissions or JetStream, `STREAM_SETTINGS` for a
    /// stream that is missing or weaker than needed, `CONFIG_INVALID` for options that
    /// can't be used.
    pub async fn connect(options: NatsOptions) -> Result<Self, Fault> {
        let broker = Broker::connect(options).await?;
        streams::ensure(&broker, &wanted(&broker.options)).await?;
        let messages = NatsMessages::open(broker.clone()).await?;
        let bus = Bus {
            messages: Arc::new(messages),
            journal: Arc::new(NatsJournal::new(broker.clone())),
            slots: Arc::new(NatsSlots::new(broker.clone())),
            leases: Arc::new(NatsLeases::new(broker.clone())),
            blobs: Arc::new(NatsBlobs::new(broker.clone())),
            inbox: Some(Arc::new(NatsInbox::new(broker.clone()))),
        };
        let handle = NatsHandle::new(broker);
        Ok(Self { bus, handle })
    }

    /// Connects for [`NatsHandle::check`] alone: makes nothing, demands nothing.
    ///
    /// # Errors
    /// As for [`NatsBus::connect`], without `STREAM_SETTINGS`.
    pub async fn look(options: NatsOptions) -> Result<NatsHandle, Fault> {
        let broker = Broker::connect(options).await?;
        Ok(NatsHandle::new(broker))
    }

    /// Connects for requests and events alone, as a publisher does: needs no JetStream,
    /// and only the permissions for the subjects that are used.
    ///
    /// # Errors
    /// As for [`NatsBus::connect`], without `STREAM_SETTINGS`.
    pub async fn messages(options: NatsOptions) -> Result<Arc<dyn Messages>, Fault> {
        let broker = Broker::connect_plain(options).await?;
        Ok(Arc::new(NatsMessages::open(broker).await?))
    }

    /// Makes the streams that are missing and strengthens those that are too weak,
    /// whatever `options.create` says.
    ///
    /// # Errors
    /// As for [`NatsBus::connect`]; `STREAM_SETTINGS` for what can't be changed in place.
    pub async fn set_up(options: NatsOptions) -> Result<Vec<SetUp>, Fault> {
        let broker = Broker::connect(options).await?;
        streams::setup(&broker, &wanted(&broker.options)).await
    }
}

/// Settings of every stream.
pub(super) fn wanted(options: &NatsOptions) -> Vec<Config> {
    let mut wanted = vec![
        layout::stream(options),
        leases::stream(options),
        blobs::stream(options),
    ];
    wanted.extend(inbox::streams(options));
    wanted
}

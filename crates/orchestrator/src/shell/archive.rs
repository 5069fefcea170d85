//! Archives of forgotten goals: written before a journal is replaced, read in its place.

use detent_bus::{Blobs, GoalKey};
use detent_protocol::claim::{Claim, claims_of};
use detent_protocol::json::Digest;
use detent_protocol::record::{Body, Said};
use detent_protocol::tombstone::{ARCHIVE_PART_BYTES, Archive, ArchivePart, Tombstone};
use detent_protocol::{Code, Fault, journal::Entry};
use serde_bytes::ByteBuf;

/// Writes an archive, a part at a time.
pub(super) struct Writer<'a> {
    blobs: &'a dyn Blobs,
    part: ArchivePart,
    part_bytes: usize,
    archive: Archive,
}

impl<'a> Writer<'a> {
    pub(super) fn new(blobs: &'a dyn Blobs, key: &GoalKey) -> Self {
        Self {
            blobs,
            part: ArchivePart::new(key.tenant.clone(), key.goal, 1),
            part_bytes: 0,
            archive: Archive::default(),
        }
    }

    /// Takes the next entry of the journal.
    pub(super) async fn add(&mut self, entry: &[u8]) -> Result<(), Fault> {
        let full = self.part_bytes + entry.len() > ARCHIVE_PART_BYTES;
        if full && !self.part.entries.is_empty() {
            self.put().await?;
        }
        self.part_bytes += entry.len();
        self.part.entries.push(ByteBuf::from(entry.to_vec()));
        self.archive.entries += 1;
        Ok(())
    }

    async fn put(&mut self) -> Result<(), Fault> {
        let body = self.part.encode()?;
        self.archive.bytes += body.len() as u64;
        self.archive.parts.push(self.blobs.put(body).await?);
        self.part.first = self.archive.entries + 1;
        self.part.entries.clear();
        self.part_bytes = 0;
        Ok(())
    }

    /// The archive; all of it is durable.
    pub(super) async fn finish(mut self) -> Result<Archive, Fault> {
        if !self.part.entries.is_empty() {
            self.put().await?;
        }
        Ok(self.archive)
    }
}

/// One part of a goal's archive.
///
/// # Errors
/// `EVENTS_GONE` where it was removed.
pub(super) async fn part(
    blobs: &dyn Blobs,
    key: &GoalKey,
    digest: &Digest,
) -> Result<ArchivePart, Fault> {
    let Some(body) = blobs.get(digest).await? else {
        let message = format!(
            "the archive of goal {} was kept for its time and is gone; its result stays",
            key.goal
        );
        return Err(Fault::new(Code::EventsGone, message).at("/goal"));
    };
    ArchivePart::decode(&body, &key.tenant, &key.goal)
}

/// The outputs that were kept as bodies, by the entries of one part of an archive; none
/// where the part is gone or can't be read, for then nobody can say.
pub(super) async fn claims(
    blobs: &dyn Blobs,
    key: &GoalKey,
    digest: &Digest,
) -> Result<Vec<Claim>, Fault> {
    let read = part(blobs, key, digest).await;
    let claims = read.and_then(|part| {
        let claims = part.entries.iter().map(|entry| claims_in(entry));
        claims.collect::<Result<Vec<_>, _>>()
    });
    match claims {
        Ok(claims) => Ok(claims.into_iter().flatten().collect()),
        Err(fault) if fault.code == Code::EventsGone => Ok(Vec::new()),
        Err(fault) if matches!(fault.code, Code::JournalCorrupt | Code::JournalUnreadable) => {
            tracing::warn!(goal = %key.goal, %fault, "what its large outputs were kept as stays");
            Ok(Vec::new())
        }
        Err(fault) => Err(fault),
    }
}

fn claims_in(entry: &[u8]) -> Result<Vec<Claim>, Fault> {
    let (entry, _) = Entry::decode_alone(entry)?;
    let records = entry.records.iter();
    let claims = records.map(|record| match &record.said {
        Said::Known(body) => claims_of(body),
        Said::Unknown { .. } => Vec::new(),
    });
    Ok(claims.flatten().collect())
}

/// The tombstone in these bytes, if they are one, and the number of its record.
///
/// # Errors
/// `JOURNAL_CORRUPT` or `JOURNAL_UNREADABLE`.
pub(super) fn read_tombstone(bytes: &[u8]) -> Result<Option<(u64, Tombstone)>, Fault> {
    if !Entry::is_tombstone(bytes) {
        return Ok(None);
    }
    let (entry, _) = Entry::decode_alone(bytes)?;
    let unreadable = || Fault::new(Code::JournalUnreadable, "a tombstone of a newer version");
    let record = entry.records.into_iter().next().ok_or_else(unreadable)?;
    match record.said {
        Said::Known(Body::Forgotten { goal }) => Ok(Some((record.n, *goal))),
        _ => Err(unreadable()),
    }
}

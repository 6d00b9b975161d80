//! Memory that the body of a request takes while it is read: it counts for the connection on which it comes, and that for the team of
//! its last request.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use axum::BoxError;
use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use uuid::Uuid;

/// Size from which on a body is counted, bytes, and the steps in which it is.
const STEP: usize = 64 << 10;

/// A count, taken back when this is dropped.
pub(crate) type Counted = Box<dyn Any + Send + Sync>;

/// Counts memory of requests on one connection.
#[derive(Clone)]
pub(crate) struct Memory(Arc<dyn CountsMemory>);

/// A connection that counts the memory of its requests.
pub(crate) trait CountsMemory: Send + Sync {
    /// Counts bytes until what is returned is dropped.
    fn count(&self, bytes: usize) -> Counted;

    /// Notes the team that sends a request.
    fn belongs_to(&self, team: Uuid);

    /// Notes the team of the sandbox that a request is for.
    fn visits(&self, team: Uuid);
}

impl Memory {
    pub(crate) fn new(connection: impl CountsMemory + 'static) -> Self {
        Self(Arc::new(connection))
    }

    /// Notes the team that sends the request.
    pub(crate) fn belongs_to(&self, team: Uuid) {
        self.0.belongs_to(team);
    }

    /// Notes the team of the sandbox that the request is for.
    pub(crate) fn visits(&self, team: Uuid) {
        self.0.visits(team);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

/// Reads a whole body of at most `limit` bytes. What came over no connection is not counted.
///
/// # Errors
/// [`LengthLimitError`] if it is longer, or the error of the body.
pub(crate) async fn whole<B>(body: B, limit: usize, memory: Option<&Memory>) -> Result<Bytes, BoxError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let (mut body, mut bytes, mut counted) = (Limited::new(body, limit), BytesMut::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        bytes.extend_from_slice(&frame?.into_data().unwrap_or_default());
        if let Some(memory) = memory
            && bytes.len() >= (counted.len() + 1) * STEP
        {
            counted.push(memory.0.count(STEP));
        }
    }
    Ok(bytes.freeze())
}

/// Whether a body was too long.
pub(crate) fn is_too_long(error: &BoxError) -> bool {
    error.is::<LengthLimitError>()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::Full;

    use super::*;

    struct Back(Arc<AtomicUsize>, usize);

    impl Drop for Back {
        fn drop(&mut self) {
            self.0.fetch_sub(self.1, Ordering::Relaxed);
        }
    }

    #[derive(Default, Clone)]
    struct Counter {
        now: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl CountsMemory for Counter {
        fn count(&self, bytes: usize) -> Counted {
            let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.most.fetch_max(now, Ordering::Relaxed);
            Box::new(Back(self.now.clone(), bytes))
        }

        fn belongs_to(&self, _: Uuid) {}

        fn visits(&self, _: Uuid) {}
    }

    #[tokio::test]
    async fn bodies_are_counted_while_they_are_read() {
        let counter = Counter::default();
        let (now, most) = (counter.now.clone(), counter.most.clone());
        let memory = Memory::new(counter);
        let frames = |count| {
            let frames = (0..count).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; STEP / 2])));
            axum::body::Body::from_stream(futures_util::stream::iter(frames))
        };
        let body = whole(frames(10), 5 * STEP, Some(&memory)).await.unwrap();
        assert_eq!(
            (body.len(), most.load(Ordering::Relaxed), now.load(Ordering::Relaxed)),
            (5 * STEP, 5 * STEP, 0)
        );
        let error = whole(frames(11), 5 * STEP, Some(&memory)).await.unwrap_err();
        assert!(is_too_long(&error) && now.load(Ordering::Relaxed) == 0);
        assert_eq!(whole(Full::new(Bytes::from("abc")), 3, None).await.unwrap(), "abc");
    }
}

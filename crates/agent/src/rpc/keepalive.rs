//! Keepalive messages of a stream.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::time::{Instant, Sleep};

use crate::error::Result;

/// Passes `stream` on, and adds `filler()` whenever `interval` passes without an item. The clock starts with the first item,
/// so nothing precedes it.
pub fn with_keepalive<S, T>(
    stream: S,
    interval: Duration,
    filler: fn() -> T,
) -> impl Stream<Item = Result<T>> + Send
where
    S: Stream<Item = Result<T>> + Send,
    T: Send,
{
    Keepalive { stream: Box::pin(stream), interval, filler, silence: None }
}

struct Keepalive<S, T> {
    stream: Pin<Box<S>>,
    interval: Duration,
    filler: fn() -> T,
    silence: Option<Pin<Box<Sleep>>>,
}

impl<S: Stream<Item = Result<T>>, T> Stream for Keepalive<S, T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = Instant::now() + this.interval;
        if let Poll::Ready(item) = this.stream.as_mut().poll_next(cx) {
            match &mut this.silence {
                Some(silence) => silence.as_mut().reset(next),
                None => this.silence = Some(Box::pin(tokio::time::sleep_until(next))),
            }
            return Poll::Ready(item);
        }
        let Some(silence) = &mut this.silence else { return Poll::Pending };
        if silence.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        silence.as_mut().reset(next);
        Poll::Ready(Some(Ok((this.filler)())))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_filled_after_the_first_item_only() {
        let start = Instant::now();
        let items = stream::unfold(0, |n| async move {
            tokio::time::sleep(Duration::from_secs(25)).await;
            (n < 2).then_some((Ok("item"), n + 1))
        });
        let mut items = Box::pin(with_keepalive(items, Duration::from_secs(10), || "filler"));
        let mut seen = Vec::new();
        while let Some(item) = items.next().await {
            seen.push((item.unwrap(), start.elapsed().as_secs()));
        }
        assert_eq!(
            seen,
            [("item", 25), ("filler", 35), ("filler", 45), ("item", 50), ("filler", 60), ("filler", 70)]
        );
    }
}

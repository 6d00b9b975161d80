//! The output of a process that has not been read by all subscribers: one log of chunks, one cursor for each subscriber.
//!
//! With subscribers the log holds what the slowest of them still needs, and writers wait once that is [`WINDOW`] chunks.
//! Several subscribers may drift further apart, [`DRIFT`] bytes, so that one that is slow for a moment does not hold up
//! the rest; one that takes nothing for [`STALL_TIMEOUT`] while it does hold them up is cut off. Without subscribers nothing
//! waits: the newest [`SPOOL`] bytes are kept for the next one, so that a client which loses its connection loses little.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::time::Instant;

use crate::spawn::Exit;

/// Limit on the chunks a subscriber may lag before the process has to wait.
pub const WINDOW: usize = 64;
/// Limit on the bytes one of several subscribers may lag while another one keeps up.
pub const DRIFT: usize = 4 << 20;
/// Limit on the bytes kept while there is no subscriber, counted with the memory that a chunk costs.
pub const SPOOL: usize = 1 << 20;
/// How long one subscriber may hold up others.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Memory that a chunk costs besides its bytes.
const CHUNK_COST: usize = 256;

/// The stream a chunk came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal.
    Terminal,
}

/// Bytes that the process wrote, as read in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Stream that the process wrote to.
    pub channel: Channel,
    /// Output of the process; never empty.
    pub bytes: Bytes,
}

impl Chunk {
    fn cost(&self) -> usize {
        self.bytes.len() + CHUNK_COST
    }
}

/// An item of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// The process wrote something.
    Data(Chunk),
    /// The process ended; nothing follows.
    End(Exit),
    /// The subscriber was too slow and has been removed; nothing follows.
    CutOff,
}

/// The log of one process.
#[derive(Debug, Default)]
pub struct Output {
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    chunks: VecDeque<Chunk>,
    /// Memory that `chunks` cost.
    cost: usize,
    /// Number of the first of `chunks`.
    first: u64,
    cursors: HashMap<u64, Cursor>,
    next_cursor: u64,
    /// Number of tasks with a chunk to write.
    writers: Vec<Waker>,
    end: Option<Exit>,
}

#[derive(Debug)]
struct Cursor {
    /// Number of the next chunk to read.
    position: u64,
    moved: Instant,
    reader: Option<Waker>,
}

impl Output {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscriber, which sees output from now on; if it is the only one, first the output that nobody has seen.
    pub fn subscribe(self: &Arc<Self>) -> Subscription {
        let mut log = self.log();
        let position = if log.cursors.is_empty() { log.first } else { log.end_position() };
        let id = log.next_cursor;
        log.next_cursor += 1;
        log.cursors.insert(id, Cursor { position, moved: Instant::now(), reader: None });
        // With another subscriber that keeps up, a slow one holds up the process later.
        log.wake_writers();
        Subscription { output: Arc::clone(self), id, over: false }
    }

    /// Appends a chunk, even if there is no room.
    pub fn push(&self, channel: Channel, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut log = self.log();
        let chunk = Chunk { channel, bytes };
        log.cost += chunk.cost();
        log.chunks.push_back(chunk);
        log.trim();
        log.wake_readers();
    }

    /// Marks the end, which comes after chunks that are still unread.
    pub fn end(&self, exit: Exit) {
        let mut log = self.log();
        log.end = Some(exit);
        log.wake_readers();
    }

    /// Waits until a chunk may be pushed.
    pub async fn room(&self) {
        while !self.log().has_room() {
            let wait = std::future::poll_fn(|cx| self.poll_room(cx));
            if tokio::time::timeout(STALL_TIMEOUT, wait).await.is_err() {
                self.log().cut_off_stalled();
            }
        }
    }

    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut log = self.log();
        if log.has_room() {
            return Poll::Ready(());
        }
        if !log.writers.iter().any(|w| w.will_wake(cx.waker())) {
            log.writers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Log {
    fn end_position(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    /// Number of chunks that a cursor has not read.
    fn lag(&self, cursor: &Cursor) -> usize {
        usize::try_from(self.end_position() - cursor.position).unwrap_or(usize::MAX)
    }

    fn has_room(&self) -> bool {
        let lags = || self.cursors.values().map(|c| self.lag(c));
        match (lags().min(), lags().max()) {
            (_, None | Some(0..WINDOW)) => true,
            // One subscriber keeps up, so the others get more time; the log is as long as the lag of the slowest.
            (Some(0..WINDOW), Some(_)) => self.cost < DRIFT,
            _ => false,
        }
    }

    /// Drops chunks that no subscriber needs, or without subscribers those that the spool has no room for.
    fn trim(&mut self) {
        let needed = self.cursors.values().map(|c| c.position).min();
        while self
            .chunks
            .front()
            .is_some_and(|_| needed.map_or(self.cost > SPOOL, |needed| self.first < needed))
        {
            if let Some(chunk) = self.chunks.pop_front() {
                self.cost -= chunk.cost();
                self.first += 1;
            }
        }
    }

    fn wake_readers(&mut self) {
        for reader in self.cursors.values_mut().filter_map(|c| c.reader.take()) {
            reader.wake();
        }
    }

    fn wake_writers(&mut self) {
        if !self.writers.is_empty() && self.has_room() {
            self.writers.drain(..).for_each(Waker::wake);
        }
    }

    fn cut_off_stalled(&mut self) {
        let keeps_up = self.cursors.values().any(|c| self.lag(c) < WINDOW);
        if !keeps_up {
            return;
        }
        let end = self.end_position();
        self.cursors.retain(|_, cursor| {
            let stalled = end - cursor.position >= WINDOW as u64 && cursor.moved.elapsed() >= STALL_TIMEOUT;
            if stalled && let Some(reader) = cursor.reader.take() {
                reader.wake();
            }
            !stalled
        });
        self.trim();
        self.wake_writers();
    }
}

/// A subscriber of a log. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscription {
    output: Arc<Output>,
    id: u64,
    over: bool,
}

impl Stream for Subscription {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let output = Arc::clone(&self.output);
        let mut log = output.log();
        let (first, end) = (log.first, log.end);
        let Some(cursor) = log.cursors.get_mut(&self.id) else {
            self.over = true;
            return Poll::Ready(Some(Item::CutOff));
        };
        let index = usize::try_from(cursor.position.saturating_sub(first)).unwrap_or(usize::MAX);
        let position = cursor.position;
        match (log.chunks.get(index).cloned(), end) {
            (Some(chunk), _) => {
                if let Some(cursor) = log.cursors.get_mut(&self.id) {
                    cursor.position += 1;
                    cursor.moved = Instant::now();
                }
                // Only the reader of the oldest chunk can have been the last that needed it.
                if position == first {
                    log.trim();
                }
                log.wake_writers();
                Poll::Ready(Some(Item::Data(chunk)))
            }
            (None, Some(exit)) => {
                self.over = true;
                Poll::Ready(Some(Item::End(exit)))
            }
            (None, None) => {
                if let Some(cursor) = log.cursors.get_mut(&self.id) {
                    // A subscriber that has read everything has not stalled.
                    cursor.moved = Instant::now();
                    cursor.reader = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut log = self.output.log();
        log.cursors.remove(&self.id);
        log.trim();
        log.wake_writers();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};

    use super::*;

    fn push(output: &Output, text: &str) {
        output.push(Channel::Stdout, Bytes::copy_from_slice(text.as_bytes()));
    }

    fn ready(subscription: &mut Subscription) -> Vec<String> {
        std::iter::from_fn(|| match subscription.next().now_or_never()?? {
            Item::Data(chunk) => Some(String::from_utf8(chunk.bytes.to_vec()).unwrap()),
            other => Some(format!("{other:?}")),
        })
        .collect()
    }

    #[test]
    fn the_first_subscriber_gets_the_spool_and_the_second_only_what_follows() {
        let output = Arc::new(Output::default());
        push(&output, "a");
        let mut first = output.subscribe();
        let mut second = output.subscribe();
        push(&output, "b");
        output.end(Exit::Code(0));
        assert_eq!(ready(&mut first), ["a", "b", "End(Code(0))"]);
        assert_eq!(ready(&mut second), ["b", "End(Code(0))"]);
        drop((first, second));
        assert_eq!(ready(&mut output.subscribe()), ["End(Code(0))"]);
    }

    #[test]
    fn without_subscribers_the_oldest_is_dropped() {
        let output = Arc::new(Output::default());
        let chunk = "x".repeat(32 << 10);
        for _ in 0..1000 {
            assert!(output.room().now_or_never().is_some());
            push(&output, &chunk);
        }
        push(&output, "last");
        assert!(output.log().cost <= SPOOL);
        assert_eq!(ready(&mut output.subscribe()).last().map(String::as_str), Some("last"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lone_slow_subscriber_holds_the_writer_up_and_is_never_cut_off() {
        let output = Arc::new(Output::default());
        let mut slow = output.subscribe();
        for _ in 0..WINDOW {
            output.room().await;
            push(&output, "x");
        }
        assert!(tokio::time::timeout(STALL_TIMEOUT * 5, output.room()).await.is_err());
        assert_eq!(ready(&mut slow).len(), WINDOW);
        output.room().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscriber_that_joins_sets_a_waiting_writer_free() {
        let output = Arc::new(Output::default());
        let _slow = output.subscribe();
        for _ in 0..WINDOW {
            output.room().await;
            push(&output, "x");
        }
        let joining = async {
            tokio::task::yield_now().await;
            output.subscribe()
        };
        let began = Instant::now();
        let ((), _joined) = tokio::join!(output.room(), joining);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_stalls_others_is_cut_off() {
        let output = Arc::new(Output::default());
        let mut stuck = output.subscribe();
        let mut quick = output.subscribe();
        let chunk = "x".repeat(32 << 10);
        for _ in 0..1000 {
            output.room().await;
            push(&output, &chunk);
            assert_eq!(ready(&mut quick).len(), 1);
            assert!(output.log().cost < DRIFT + chunk.len() * 2);
        }
        assert_eq!(ready(&mut stuck), ["CutOff"]);
    }
}

//! Sending frames in order from many tasks.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::frame::Outgoing;

/// A socket's sending end. Dropping it ends the sending: frames that wait are not sent any more.
#[derive(Debug)]
pub struct Sending {
    queue: Arc<Queue>,
    _task: AbortOnDropHandle<()>,
}

/// A handle for sending frames; clones send at the same socket.
#[derive(Debug, Clone)]
pub struct Sender(Weak<Queue>);

#[derive(Debug)]
struct Queue {
    stream: Arc<UnixStream>,
    /// Frames that are not sent completely, the oldest first; `None` once the other side is gone.
    frames: Mutex<Option<VecDeque<Outgoing>>>,
    added: Notify,
}

impl Sending {
    /// Sends at `stream`. Needs a tokio runtime.
    pub fn new(stream: Arc<UnixStream>) -> Self {
        let queue =
            Arc::new(Queue { stream, frames: Mutex::new(Some(VecDeque::new())), added: Notify::new() });
        let task = AbortOnDropHandle::new(tokio::spawn(queue.clone().send_waiting()));
        Self { queue, _task: task }
    }

    /// A handle for tasks that have frames to send.
    pub fn sender(&self) -> Sender {
        Sender(Arc::downgrade(&self.queue))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.queue.frames().take();
    }
}

impl Sender {
    /// Sends a frame after those before it, without waiting: it is queued if the socket is full.
    ///
    /// # Errors
    /// An error if the other side is gone, or the sending has ended.
    pub fn send(&self, frame: Outgoing) -> io::Result<()> {
        self.0.upgrade().ok_or(io::ErrorKind::BrokenPipe)?.send(frame)
    }
}

impl Queue {
    fn send(&self, mut frame: Outgoing) -> io::Result<()> {
        let mut waiting = self.frames();
        let frames = waiting.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        // At once if nothing is before it: waking the task would cost more than sending does.
        if frames.is_empty() {
            match self.stream.try_io(Interest::WRITABLE, || frame.write(&self.stream)) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    waiting.take();
                    return Err(error);
                }
            }
        }
        frames.push_back(frame);
        drop(waiting);
        self.added.notify_one();
        Ok(())
    }

    async fn send_waiting(self: Arc<Self>) {
        loop {
            self.added.notified().await;
            if self.stream.async_io(Interest::WRITABLE, || self.write_waiting()).await.is_err() {
                self.frames().take();
                return;
            }
        }
    }

    /// Writes the frames that wait, or fails if the socket takes no more for now.
    fn write_waiting(&self) -> io::Result<()> {
        let mut waiting = self.frames();
        let Some(frames) = waiting.as_mut() else { return Ok(()) };
        while let Some(frame) = frames.front_mut() {
            frame.write(&self.stream)?;
            frames.pop_front();
        }
        Ok(())
    }

    fn frames(&self) -> MutexGuard<'_, Option<VecDeque<Outgoing>>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;
    use crate::frame::Incoming;

    fn ends() -> (Sending, Incoming) {
        let (near, far) = UnixStream::pair().unwrap();
        (Sending::new(Arc::new(near)), Incoming::new(Arc::new(far)))
    }

    fn frame(message: &impl serde::Serialize) -> Outgoing {
        Outgoing::new(message, None, Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn frames_arrive_in_order_with_their_descriptors() {
        let (sending, mut far) = ends();
        let sender = sending.sender();
        // More than the socket takes: most of them wait.
        for number in 0..100_u32 {
            let text = "x".repeat(if number % 7 == 0 { 50_000 } else { 10 });
            let mut fd = None;
            if number % 3 == 0 {
                let (reader, mut writer) = std::io::pipe().unwrap();
                io::Write::write_all(&mut writer, &[number as u8]).unwrap();
                fd = Some(reader.into());
            }
            sender.send(Outgoing::new(&(number, text), fd, Vec::new()).unwrap()).unwrap();
        }
        for number in 0..100_u32 {
            let ((found, _), fd) = far.next::<(u32, String)>().await.unwrap().unwrap();
            assert_eq!((found, fd.is_some()), (number, number % 3 == 0));
            if let Some(fd) = fd {
                let mut byte = [0];
                std::io::PipeReader::from(fd).read_exact(&mut byte).unwrap();
                assert_eq!(u32::from(byte[0]), number);
            }
        }
        sender.send(frame(&(100, "the last"))).unwrap();
        assert_eq!(far.next::<(u32, String)>().await.unwrap().unwrap().0.0, 100);
    }

    #[tokio::test]
    async fn a_frame_with_none_before_it_is_sent_before_send_returns() {
        let (near, far) = UnixStream::pair().unwrap();
        let near = Arc::new(near);
        let sending = Sending::new(near.clone());
        near.writable().await.unwrap();
        sending.sender().send(frame(&"now")).unwrap();
        // No other task has run since.
        let mut bytes = [0; 16];
        let mut far = far.into_std().unwrap();
        assert_eq!(far.read(&mut bytes).unwrap(), 10);
        assert_eq!(&bytes[5..10], br#""now""#);
    }

    #[tokio::test]
    async fn dropping_it_closes_the_socket() {
        let (sending, mut far) = ends();
        let sender = sending.sender();
        drop(sending);
        assert!(sender.send(frame(&1)).is_err());
        assert!(far.next::<u32>().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn nothing_waits_for_a_side_that_is_gone() {
        let (sending, far) = ends();
        let sender = sending.sender();
        let long = "x".repeat(1 << 20);
        sender.send(frame(&long)).unwrap();
        sender.send(frame(&long)).unwrap();
        drop(far);
        tokio::time::timeout(Duration::from_secs(10), async {
            while sender.send(frame(&1)).is_ok() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        assert!(sending.queue.frames().is_none());
    }
}

//! A template as one archive: an OCI layout whose only layer has the files as sandboxes see them.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;

use super::Builds;
use super::archived::Archived;
use crate::domain::template::TemplateRecord;
use crate::{Error, Result};

/// Size of the pieces that a client gets, bytes.
const PIECE: usize = 256 << 10;
/// Pieces that wait for the client.
const WAITING: usize = 4;

/// Pieces of an archive. An error is the last one.
pub type Pieces = mpsc::Receiver<io::Result<Bytes>>;

impl Builds {
    /// Writes a template as an archive, with `name` as that of the image. The files are kept until it ends, whatever is deleted.
    ///
    /// # Errors
    /// When the files cannot be opened.
    pub async fn export(&self, record: &TemplateRecord, name: &str) -> Result<Pieces> {
        let image = Archived::image(record, name);
        let (sender, pieces) = mpsc::channel(WAITING);
        let shared = self.shared.clone();
        let busy = shared.busy.clone().read_owned().await;
        let uses = shared.in_use.uses();
        uses.look().await.keep(record.layers.iter().map(String::as_str));
        let opened = shared.host.open_files(&record.layers, &record.files()).await;
        let failed = |source| Error::Export { build: record.build_id, source };
        let opened = opened.map_err(failed)?;
        let (reader, writer) = pipe().map_err(|source| {
            failed(sandcove_isolate::Error::Kernel { action: "open a pipe".into(), source })
        })?;
        self.shared.tasks.spawn(async move {
            let passing = shared.stopping.run_until_cancelled(pass_on(reader, &sender));
            let (written, _) = tokio::join!(opened.export(image, writer.into()), passing);
            if let Err(error) = written {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a template was not exported to the end"
                );
                let _ = sender.send(Err(error)).await;
            }
            drop((busy, uses));
        });
        Ok(pieces)
    }
}

fn pipe() -> io::Result<(Receiver, io::PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((Receiver::from_owned_fd(reader.into())?, writer))
}

/// Passes on what arrives until the client is gone. The pipe is closed at the end, so that nothing more is written to it.
async fn pass_on(mut reader: Receiver, sender: &mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let mut piece = BytesMut::with_capacity(PIECE);
        match reader.read_buf(&mut piece).await {
            Ok(0) => return,
            Ok(_) if sender.send(Ok(piece.freeze())).await.is_err() => return,
            Ok(_) => {}
            // Whoever writes fails too, and says why.
            Err(_) => return,
        }
    }
}

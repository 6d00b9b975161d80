//! The menu: executes the requests of the server. Nothing in a request is trusted: names are plain, layers are below the directory of
//! layers, and a number stands for what this side has made.

mod checks;
mod images;
mod kept;
mod objects;
mod pool;
mod volumes;

use std::os::fd::OwnedFd;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sandcove_isolate::{Backend, Blueprint, Handle, StartPhase, create_log};

use crate::failure::Failure;
use crate::message::{Answer, Number, Order, Request, SandboxRequest};
use kept::Kept;
use objects::{Object, Objects, SandboxObject};

/// The host side, with what it holds for one server.
pub(crate) struct Menu {
    backend: Backend,
    objects: Objects,
    kept: Kept,
}

/// An answer on the side of the host, which becomes a [`crate::reply::Reply`] on the server's.
#[derive(Debug)]
pub(crate) struct Served {
    /// The answer itself.
    pub(crate) answer: Answer,
    /// Number of what this side holds from now on.
    pub(crate) number: Option<Number>,
    /// A descriptor for the server.
    pub(crate) fd: Option<OwnedFd>,
}

impl From<Answer> for Served {
    fn from(answer: Answer) -> Self {
        Self { answer, number: None, fd: None }
    }
}

impl Served {
    fn with_fd(answer: Answer, fd: impl Into<OwnedFd>) -> Self {
        Self { fd: Some(fd.into()), ..answer.into() }
    }
}

type Result<T = Served> = std::result::Result<T, Failure>;

impl Menu {
    pub(crate) fn new(backend: Backend) -> Self {
        Self { backend, objects: Objects::default(), kept: Kept::default() }
    }

    /// Releases what is held.
    pub(crate) fn forget_all(&self) {
        self.objects.clear();
    }

    /// Executes a request.
    // In a box: a request takes more memory than its caller should hold, and its code is compiled once, with this crate.
    #[inline(never)]
    pub(crate) fn serve(&self, request: Request, fd: Option<OwnedFd>) -> BoxFuture<'_, Result> {
        Box::pin(self.execute(request, fd))
    }

    async fn execute(&self, request: Request, fd: Option<OwnedFd>) -> Result {
        let backend = &self.backend;
        Ok(match request {
            Request::Create(spec) => {
                let (handle, phases) = backend.create(self.checked_spec(*spec)?, checks::log(fd)?).await?;
                self.sandbox(handle, phases)?
            }
            Request::Prepare(blueprint) => {
                let prepared = backend.prepare(self.resolved(*blueprint)?, checks::log(fd)?).await?;
                self.hold(Answer::Done, Object::Prepared(prepared))?
            }
            Request::CreateLog => Served::with_fd(Answer::Done, create_log()?),
            Request::Adopt(id) => match backend.adopt(&id).await? {
                Some(handle) => self.sandbox(handle, Vec::new())?,
                None => Answer::Nothing.into(),
            },
            Request::HoldsAnything => Answer::Flag(backend.holds_anything()).into(),
            Request::Sweep(known) => Answer::Swept(backend.sweep(&known).await).into(),
            Request::HasFiles(id) => Answer::Flag(backend.has_files(&id)).into(),
            Request::CanPark => Answer::Flag(backend.can_park()).into(),
            Request::StoredMemory(id) => Answer::StoredBytes(backend.stored_memory(&id)).into(),
            Request::Discard(id) => backend.discard(&id).await.map(done)?,
            Request::IsReady(blueprint) => Answer::Flag(backend.is_ready(&self.resolved(*blueprint)?)).into(),
            Request::WarmStates(stacks) => {
                let state = |layers| Ok::<_, Failure>(backend.warm_state(&self.layers(layers)?));
                Answer::WarmStates(stacks.into_iter().map(state).collect::<Result<_>>()?).into()
            }
            Request::PoolStates => Answer::PoolStates(backend.pool_states()).into(),
            Request::Stop => Answer::Swept(backend.stop().await).into(),
            Request::Sandbox(number, request) => self.in_sandbox(number, request).await?,
            Request::GuardedSocket(v6) => Served::with_fd(Answer::Done, backend.guarded_socket(v6)?),
            Request::Seal(context, value) => Answer::Sealed(backend.seal(&context, &value)?).into(),
            Request::RenewSealed(context, sealed) => {
                backend.renew_sealed(&context, &sealed)?.map_or(Answer::Nothing, Answer::Sealed).into()
            }
            Request::SettleKeys => {
                backend.settle_keys()?;
                Answer::Done.into()
            }
            Request::IdentityKeys => Answer::PublicKeys(backend.identity_keys()?).into(),
            Request::IsReachable(host) => {
                Answer::Flag(backend.is_reachable(checks::host(&host)?).await?).into()
            }
            Request::Export(number, image) => self.export(number, image, fd).await?,
            Request::FinishUpload(number) => self.finish_upload(number).await?,
            Request::Volume(name, request) => self.in_volume(name, request).await?,
            Request::BeginImage(config, limits) => self.begin_image(config, limits).await?,
            Request::ImageScratch => self.image_scratch().await?,
            Request::UnpackLayer { import, offset, size, digest } => {
                self.unpack_layer(import, offset, size, digest, fd).await?
            }
            Request::PublishImage(import) => self.publish_image(import).await?,
            pool => self.in_pool(pool).await?,
        })
    }

    /// Executes a message that is not answered.
    pub(crate) fn order(&self, order: Order) {
        let done = match order {
            Order::KeepReady(blueprint) => self.to_be_kept(blueprint).map(|it| self.backend.keep_ready(it)),
            Order::KeepFewReady { blueprint, few, first } => self.to_be_kept(blueprint).map(|blueprint| {
                let first = match first.and_then(|number| self.objects.take(number)) {
                    Some(Object::Prepared(first)) => Some(first),
                    _ => None,
                };
                self.backend.keep_few_ready(blueprint, few, first);
            }),
            Order::StopKeeping(layers) => self.layers(layers).map(|layers| {
                self.kept.remove(&layers);
                self.backend.stop_keeping(&layers);
            }),
            Order::Forget(number) => {
                self.objects.take(number);
                Ok(())
            }
        };
        if let Err(failure) = done {
            tracing::error!(?failure, "a message of the server was refused");
        }
    }

    async fn in_sandbox(&self, number: Number, request: SandboxRequest) -> Result {
        let SandboxObject { handle, released } =
            self.objects.sandbox(number).ok_or_else(|| Failure::refused("there is no such sandbox"))?;
        Ok(match request {
            SandboxRequest::Connect(port) => {
                Served::with_fd(Answer::Done, handle.connect(port).await?.into_std()?)
            }
            SandboxRequest::Wait => tokio::select! {
                _ = handle.wait() => Served::from(Answer::Done),
                () = released.cancelled() => return Err(Failure::refused("the sandbox was released")),
            },
            SandboxRequest::HasEnded => Answer::Flag(handle.wait().now_or_never().is_some()).into(),
            SandboxRequest::Usage => Answer::Usage(handle.usage().await?).into(),
            SandboxRequest::EgressLog => Answer::Connections(handle.egress_log().await?).into(),
            SandboxRequest::SetNetwork(policy) => {
                checks::network(&policy)?;
                handle.set_network(*policy).await.map(done)?
            }
            SandboxRequest::Pause => handle.pause().await.map(done)?,
            SandboxRequest::Freeze => handle.freeze().await.map(done)?,
            SandboxRequest::Resume => handle.resume().await.map(done)?,
            SandboxRequest::Snapshot { name, account, memory } => {
                let memory = memory.map(|mounted| self.mounted(mounted)).transpose()?;
                Answer::SnapshotTaken(handle.snapshot(checks::plain(&name)?, account, memory).await?).into()
            }
            SandboxRequest::Reclaim => Answer::Bytes(handle.reclaim().await?).into(),
            SandboxRequest::Park { mounted, max_bytes } => {
                Answer::Bytes(handle.park(self.mounted(mounted)?, max_bytes).await?).into()
            }
            SandboxRequest::ShutDown => handle.shut_down().await.map(done)?,
            SandboxRequest::Destroy => handle.destroy().await.map(done)?,
        })
    }

    fn to_be_kept(&self, blueprint: Blueprint) -> Result<Blueprint> {
        let blueprint = self.resolved(blueprint)?;
        self.kept.add(&blueprint)?;
        Ok(blueprint)
    }

    fn sandbox(&self, handle: Handle, phases: Vec<StartPhase>) -> Result {
        let answer = Answer::Sandbox(handle.record().clone(), phases);
        self.hold(answer, Object::sandbox(handle))
    }

    fn hold(&self, answer: Answer, object: Object) -> Result {
        let number = self.objects.add(object).ok_or_else(|| Failure::refused("the server holds too much"))?;
        Ok(Served { number: Some(number), ..answer.into() })
    }
}

fn done((): ()) -> Served {
    Answer::Done.into()
}

/// Runs work that blocks on a thread for it.
async fn blocking<T: Send + 'static, E: Into<Failure> + Send + 'static>(
    work: impl FnOnce() -> std::result::Result<T, E> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(Into::into),
        Err(error) => Err(Failure::Io(std::io::Error::other(error))),
    }
}

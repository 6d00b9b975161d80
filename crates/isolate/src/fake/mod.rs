//! A backend without a kernel: sandboxes are entries in a map, and their ports lead to listeners of the test. With it,
//! everything above `isolate` is tested without root, faults included.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandcove_wire::id::SandboxId;
use tokio::sync::{Notify, watch};

use crate::secrets::Vault;
use crate::{
    Blueprint, Error, Files, Known, NetworkPolicy, PoolState, Record, Result, SandboxSpec, StartPhase,
    StartPhaseKind, SweepReport, Usage, WarmState,
};

mod hold;
mod sandbox;

use hold::HoldPoint;
pub use hold::{Hold, Operation};
pub use sandbox::FakeSandbox;
use sandbox::State;

/// Size of whatever memory is stored, bytes.
const STORED_BYTES: u64 = 7 << 20;

/// The in-memory backend. Clones share their sandboxes, so one kept by a test survives a "restart" of the server.
#[derive(Clone, Default)]
pub struct Fake {
    shared: Arc<Mutex<Shared>>,
    vault: Vault,
}

#[derive(Default)]
struct Shared {
    sandboxes: BTreeMap<SandboxId, FakeSandbox>,
    /// Names of the files each sandbox has written, with processes or without.
    files: BTreeMap<SandboxId, BTreeSet<String>>,
    /// Sandboxes whose memory is stored.
    parked: BTreeSet<SandboxId>,
    /// Whether memory can be stored.
    can_park: bool,
    /// Why the memory of sandboxes that exist cannot be stored.
    refusal: Option<String>,
    snapshots: BTreeMap<String, BTreeSet<String>>,
    /// Snapshots with memory.
    snapshot_memory: BTreeSet<String>,
    layers: BTreeSet<String>,
    /// Layers of pooled sandboxes, with the memory of their warm interpreter, MiB.
    pooled: BTreeMap<Vec<PathBuf>, Option<u64>>,
    pool_states: Vec<PoolState>,
    listeners: HashMap<u16, SocketAddr>,
    failing: HashMap<Operation, u32>,
    held: HashMap<Operation, Arc<HoldPoint>>,
    refused: Arc<Notify>,
    next_slot: u32,
    max_slots: Option<usize>,
    charged: u64,
    volumes: PathBuf,
    layer_dir: Option<PathBuf>,
}

impl Fake {
    /// Points `port` of every sandbox at a listener of the test.
    pub fn listen(&self, port: u16, address: SocketAddr) {
        self.lock().listeners.insert(port, address);
    }

    /// Closes `port` in every sandbox.
    pub fn close(&self, port: u16) {
        self.lock().listeners.remove(&port);
    }

    /// Fails the next `times` uses of `operation`.
    pub fn fail_next(&self, operation: Operation, times: u32) {
        self.lock().failing.insert(operation, times);
    }

    /// Holds every use of `operation` that begins before the returned hold is dropped.
    pub fn hold(&self, operation: Operation) -> Hold {
        let point = Arc::<HoldPoint>::default();
        self.lock().held.insert(operation, point.clone());
        Hold(point)
    }

    /// Limits the number of sandboxes with processes, running or frozen.
    pub fn limit_slots(&self, max: usize) {
        self.lock().max_slots = Some(max);
    }

    /// Has memory be stored from now on.
    pub fn allow_parking(&self) {
        self.lock().can_park = true;
    }

    pub(crate) fn can_park(&self) -> bool {
        self.lock().can_park
    }

    pub(crate) fn stored_memory(&self, id: &SandboxId) -> Option<u64> {
        self.lock().parked.contains(id).then_some(STORED_BYTES)
    }

    /// Refuses to store memory from now on.
    pub fn refuse_parking(&self, reason: &str) {
        self.lock().refusal = Some(reason.to_owned());
    }

    /// Stores the memory of a sandbox without being asked.
    pub fn store_memory(&self, id: &SandboxId) {
        self.lock().parked.insert(id.clone());
    }

    /// Whether the memory of a sandbox is stored.
    pub fn has_memory(&self, id: &SandboxId) -> bool {
        self.lock().parked.contains(id)
    }

    /// Damages the memory that is stored of a sandbox.
    pub fn lose_memory(&self, id: &SandboxId) {
        self.lock().parked.remove(id);
    }

    /// Sets the space that every account is charged for.
    pub fn charge(&self, bytes: u64) {
        self.lock().charged = bytes;
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.vault
    }

    pub(crate) fn charged_bytes(&self, _account: u64) -> u64 {
        self.lock().charged
    }

    /// Waits until a connection to a closed port has been refused.
    pub async fn refused(&self) {
        let refused = self.lock().refused.clone();
        refused.notified().await;
    }

    /// Keeps volumes in `directory`. Without a directory no volume can be created.
    pub fn keep_volumes_in(&self, directory: PathBuf) {
        self.lock().volumes = directory;
    }

    /// Keeps imported images in `directory`. Without a directory no image can be imported.
    pub fn keep_layers_in(&self, directory: PathBuf) {
        self.lock().layer_dir = Some(directory);
    }

    pub(crate) fn layer_dir(&self) -> PathBuf {
        self.lock().layer_dir.clone().unwrap_or_else(|| PathBuf::from("/nonexistent/layers"))
    }

    pub(crate) fn volume_dir(&self) -> PathBuf {
        self.lock().volumes.clone()
    }

    pub(crate) fn create_volume(&self, name: &str) -> Result<()> {
        let directory = self.volume_dir();
        if directory.as_os_str().is_empty() {
            return Err(Error::PoolFull);
        }
        let path = directory.join(name);
        ["content", "work"]
            .iter()
            .try_for_each(|part| std::fs::create_dir_all(path.join(part)))
            .map_err(|source| Error::Path { action: "create", path, source })
    }

    pub(crate) async fn delete_volume(&self, name: &str) -> Result<()> {
        self.step(Operation::DeleteVolume).await?;
        let path = self.volume_dir().join(name);
        match std::fs::remove_dir_all(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::Path { action: "delete", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Ids of the sandboxes that exist now, in order.
    pub fn ids(&self) -> Vec<SandboxId> {
        self.lock().sandboxes.keys().cloned().collect()
    }

    /// Specification that a sandbox was created from.
    pub fn spec(&self, id: &SandboxId) -> Option<Arc<SandboxSpec>> {
        self.lock().sandboxes.get(id).map(|sandbox| sandbox.spec.clone())
    }

    /// Slot of a sandbox; each start gets another one.
    pub fn slot(&self, id: &SandboxId) -> Option<u32> {
        self.lock().sandboxes.get(id).map(|sandbox| sandbox.record.slot)
    }

    /// Whether a sandbox exists and is frozen.
    pub fn is_frozen(&self, id: &SandboxId) -> bool {
        self.lock().sandboxes.get(id).is_some_and(|sandbox| sandbox.state.borrow().frozen)
    }

    /// Current network policy of a sandbox.
    pub fn network(&self, id: &SandboxId) -> Option<NetworkPolicy> {
        self.lock().sandboxes.get(id).map(|sandbox| sandbox.state.borrow().network.clone())
    }

    /// Sets the usage that [`crate::Handle::usage`] returns.
    pub fn set_usage(&self, id: &SandboxId, usage: Usage) {
        if let Some(sandbox) = self.lock().sandboxes.get(id) {
            sandbox.state.send_modify(|state| state.usage = usage);
        }
    }

    /// Writes a file in a sandbox.
    pub fn write(&self, id: &SandboxId, name: &str) {
        if let Some(files) = self.lock().files.get_mut(id) {
            files.insert(name.to_owned());
        }
    }

    /// Names of the files a sandbox has written; `None` for an unknown sandbox.
    pub fn files(&self, id: &SandboxId) -> Option<Vec<String>> {
        self.lock().files.get(id).map(|files| files.iter().cloned().collect())
    }

    /// Names of the snapshots, in order.
    pub fn snapshots(&self) -> Vec<String> {
        self.lock().snapshots.keys().cloned().collect()
    }

    /// Ends a sandbox's PID 1 as a crash would.
    pub fn crash(&self, id: &SandboxId) {
        if let Some(sandbox) = self.lock().sandboxes.get(id) {
            sandbox.state.send_modify(|state| state.alive = false);
        }
    }

    pub(crate) async fn prepare(&self) -> Result<()> {
        self.step(Operation::Create).await
    }

    pub(crate) async fn create(&self, spec: SandboxSpec) -> Result<(FakeSandbox, Vec<StartPhase>)> {
        let mut phases = Vec::new();
        StartPhase::timed(&mut phases, StartPhaseKind::Prepare, self.step(Operation::Create)).await?;
        let sandbox = StartPhase::timed(&mut phases, StartPhaseKind::Assign { pooled: false }, async {
            self.assign(spec)
        })
        .await?;
        Ok((sandbox, phases))
    }

    fn assign(&self, spec: SandboxSpec) -> Result<FakeSandbox> {
        let mut shared = self.lock();
        let missing = || Error::Jail { step: "files".into(), reason: "not there".into() };
        let files = match &spec.files {
            Files::Empty => BTreeSet::new(),
            Files::Snapshot(name) => shared.snapshots.get(name).ok_or_else(missing)?.clone(),
            Files::Own => shared.files.get(&spec.id).ok_or_else(missing)?.clone(),
        };
        let has_memory = match &spec.files {
            Files::Snapshot(name) => shared.snapshot_memory.contains(name) && shared.refusal.is_none(),
            Files::Empty | Files::Own => shared.parked.contains(&spec.id),
        };
        if spec.memory && !has_memory {
            return Err(Error::NotStored { reason: "there is none".into() });
        }
        if shared.sandboxes.contains_key(&spec.id) {
            return Err(Error::Jail { step: "files".into(), reason: "in use".into() });
        }
        if let Some(max) = shared.max_slots.filter(|max| shared.sandboxes.len() >= *max) {
            return Err(Error::NoSlot(u32::try_from(max).unwrap_or(u32::MAX)));
        }
        shared.files.insert(spec.id.clone(), files);
        shared.parked.remove(&spec.id);
        shared.next_slot += 1;
        let record = Record {
            id: spec.id.clone(),
            slot: shared.next_slot,
            pid: 0,
            start_ticks: 0,
            limits: spec.blueprint.limits,
            network: spec.network.clone(),
            closed_link: false,
            programs: String::new(),
        };
        let state =
            State { alive: true, frozen: false, network: spec.network.clone(), usage: Usage::default() };
        let sandbox = FakeSandbox {
            backend: self.clone(),
            record: Arc::new(record),
            spec: Arc::new(spec),
            state: watch::Sender::new(state),
        };
        shared.sandboxes.insert(sandbox.record.id.clone(), sandbox.clone());
        Ok(sandbox)
    }

    pub(crate) async fn adopt(&self, id: &SandboxId) -> Result<Option<FakeSandbox>> {
        self.step(Operation::Adopt).await?;
        Ok(self.lock().sandboxes.get(id).filter(|sandbox| sandbox.state.borrow().alive).cloned())
    }

    pub(crate) fn holds_anything(&self) -> bool {
        let shared = self.lock();
        !(shared.sandboxes.is_empty() && shared.files.is_empty() && shared.snapshots.is_empty())
    }

    pub(crate) fn sweep(&self, known: &Known) -> SweepReport {
        let mut shared = self.lock();
        let (kept, gone) = std::mem::take(&mut shared.sandboxes)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(id, _)| known.live.contains(id));
        shared.sandboxes = kept;
        shared.files.retain(|id, _| known.live.contains(id) || known.stored.contains(id));
        shared.parked.retain(|id| known.parked.contains(id));
        shared.snapshots.retain(|name, _| known.snapshots.contains(name));
        SweepReport { removed: gone.into_keys().map(String::from).collect(), failed: Vec::new() }
    }

    pub(crate) fn has_files(&self, id: &SandboxId) -> bool {
        self.lock().files.contains_key(id)
    }

    pub(crate) async fn discard(&self, id: &SandboxId) -> Result<()> {
        self.step(Operation::Destroy).await?;
        let mut shared = self.lock();
        shared.files.remove(id);
        shared.parked.remove(id);
        Ok(())
    }

    pub(crate) async fn delete_snapshot(&self, name: &str) -> Result<()> {
        let mut shared = self.lock();
        shared.snapshots.remove(name);
        shared.snapshot_memory.remove(name);
        Ok(())
    }

    pub(crate) async fn publish_layer(&self, snapshot: &str, layer: &str) -> Result<()> {
        self.step(Operation::PublishLayer).await?;
        let mut shared = self.lock();
        if !shared.snapshots.contains_key(snapshot) {
            return Err(Error::Jail { step: "layer".into(), reason: "no such snapshot".into() });
        }
        shared.layers.insert(layer.to_owned());
        Ok(())
    }

    pub(crate) fn remove_layer(&self, layer: &str) -> Result<()> {
        self.lock().layers.remove(layer);
        Ok(())
    }

    /// Opens an empty directory, which stands for the files of every template.
    pub(crate) async fn open_files(&self) -> Result<OwnedFd> {
        self.step(Operation::OpenFiles).await?;
        let path = std::env::temp_dir().join("sandcove-fake-files");
        let opened = std::fs::create_dir_all(&path).and_then(|()| std::fs::File::open(&path));
        opened.map(OwnedFd::from).map_err(|source| Error::Path { action: "open", path, source })
    }

    /// Layers that were published are known; those of the server's own templates always exist.
    pub(crate) fn has_layer(&self, layer: &str) -> bool {
        match layer.split_once('/') {
            Some((name, _)) => self.lock().layers.contains(name),
            None => true,
        }
    }

    /// Names of the published layers, in order.
    pub fn layer_names(&self) -> Vec<String> {
        self.lock().layers.iter().cloned().collect()
    }

    pub(crate) fn note_pooled(&self, blueprint: &Blueprint, warm_mib: u64) {
        let warm = blueprint.wants_warm().then_some(warm_mib);
        self.lock().pooled.insert(blueprint.layers.clone(), warm);
    }

    pub(crate) fn forget_pooled(&self, layers: &[PathBuf]) {
        self.lock().pooled.remove(layers);
    }

    pub(crate) fn warm_state(&self, layers: &[PathBuf]) -> Option<(WarmState, u64)> {
        let warm_mib = (*self.lock().pooled.get(layers)?)?;
        Some((WarmState::Starting, warm_mib))
    }

    /// Has [`crate::Backend::pool_states`] return this.
    pub fn set_pool_states(&self, states: Vec<PoolState>) {
        self.lock().pool_states = states;
    }

    pub(crate) fn pool_states(&self) -> Vec<PoolState> {
        self.lock().pool_states.clone()
    }

    /// Whether [`crate::Backend::keep_few_ready`] was called for these layers, and not undone.
    pub fn is_pooled(&self, layers: &[PathBuf]) -> bool {
        self.lock().pooled.contains_key(layers)
    }

    async fn step(&self, operation: Operation) -> Result<()> {
        let point = self.lock().held.get(&operation).cloned();
        if let Some(point) = point {
            point.reached.notify_one();
            // The sender lives as long as the hold point.
            let _ = point.open.subscribe().wait_for(|open| *open).await;
        }
        match self.lock().failing.get_mut(&operation) {
            Some(times) if *times > 0 => {
                *times -= 1;
                Err(Error::Jail { step: format!("{operation:?}"), reason: "scripted fault".into() })
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

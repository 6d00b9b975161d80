//! Requests and answers as data.

use std::collections::HashSet;
use std::path::PathBuf;

use sandcove_image::files::{Attributes, Entry, Removal};
use sandcove_image::oci::{Exported, Limits, Sha256Digest};
use sandcove_isolate::{
    Blueprint, Connection, DiskSpace, Few, Files, Known, Mounted, NetworkPolicy, PoolState, PublicKey,
    Record, SandboxSpec, SnapshotReport, StartPhase, SweepReport, Usage, WarmState,
};
use sandcove_wire::id::SandboxId;
use sandcove_wire::secret::Secret;
use serde::{Deserialize, Serialize};

/// Number of something that the host side holds for the server.
pub(crate) type Number = u64;

/// A request that is answered. Layers are paths relative to the directory of all layers; volumes, snapshots and layers to be changed are
/// plain names.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Starts a sandbox. It writes to the descriptor of the request, if there is one.
    Create(Box<SandboxSpec>),
    /// Creates a sandbox for the pool. It writes to the descriptor of the request, if there is one.
    Prepare(Box<Blueprint>),
    /// Creates an empty log for a sandbox, as a descriptor.
    CreateLog,
    /// Adopts a sandbox of an earlier server.
    Adopt(SandboxId),
    /// Whether sandboxes, snapshots or volumes exist.
    HoldsAnything,
    /// Removes what is not in the list.
    Sweep(Box<Known>),
    /// Whether the files of a sandbox exist.
    HasFiles(SandboxId),
    /// Whether memory can be stored on disk.
    CanPark,
    /// Size of the memory that is stored of a sandbox.
    StoredMemory(SandboxId),
    /// Deletes the files of a sandbox without processes.
    Discard(SandboxId),
    /// Whether a pooled sandbox is ready.
    IsReady(Box<Blueprint>),
    /// States of the warm interpreters of several stacks of layers.
    WarmStates(Vec<Vec<PathBuf>>),
    /// Numbers of pooled sandboxes.
    PoolStates,
    /// Releases what no sandbox needs.
    Stop,
    /// Requests for one sandbox.
    Sandbox(Number, SandboxRequest),
    /// Creates a socket that reaches only the internet; `true` for IPv6.
    GuardedSocket(bool),
    /// Seals a value in a context.
    Seal(String, Secret),
    /// Seals a value anew, if it was not sealed with the current key, in the context of before.
    RenewSealed(String, String),
    /// Drops the keys that no value is sealed with any more.
    SettleKeys,
    /// Public keys that tokens of sandboxes are checked with.
    IdentityKeys,
    /// Whether a host is one that sandboxes may reach.
    IsReachable(String),
    /// Disk space that an account is charged for.
    Charged(u64),
    /// Deletes a snapshot.
    DeleteSnapshot(String),
    /// Whether a snapshot exists.
    HasSnapshot(String),
    /// Makes a snapshot a layer.
    PublishLayer {
        /// Name of the snapshot.
        snapshot: String,
        /// Name of the layer.
        layer: String,
    },
    /// Deletes a layer.
    RemoveLayer(String),
    /// Whether a layer exists.
    HasLayer(PathBuf),
    /// Names of all layers.
    LayerNames,
    /// Removes the layers of images and of the server that are not in the list.
    CollectLayers(HashSet<String>),
    /// Sizes of snapshots and layers that are to be deleted.
    Measure {
        /// Names of snapshots.
        snapshots: Vec<String>,
        /// Names of layers.
        layers: HashSet<String>,
    },
    /// Waits for a turn to import the image whose configuration has this digest.
    BeginImage(Sha256Digest, Limits),
    /// Creates a file without a name on the disk of the layers.
    ImageScratch,
    /// Unpacks a layer from the descriptor of the request.
    UnpackLayer {
        /// The import.
        import: Number,
        /// Position of the layer in the file.
        offset: u64,
        /// Size of the compressed layer, bytes.
        size: u64,
        /// Digest of the uncompressed layer.
        digest: Sha256Digest,
    },
    /// Publishes an image whose layers are unpacked.
    PublishImage(Number),
    /// Inspects the disk of the pool.
    PoolSpace,
    /// Opens the files that sandboxes of these layers begin with.
    OpenFiles {
        /// Layers, topmost first.
        layers: Vec<PathBuf>,
        /// Files on top of them.
        files: Files,
    },
    /// Writes open files as an archive to the descriptor of the request.
    Export(Number, Exported),
    /// Creates a volume.
    CreateVolume {
        /// Name of the volume.
        name: String,
        /// Limit of its size, MiB.
        size_mib: u64,
    },
    /// Deletes a volume.
    DeleteVolume(String),
    /// Names of all volumes.
    VolumeNames,
    /// A request for the files of the volume of this name.
    Volume(String, VolumeRequest),
    /// Moves an uploaded file into place.
    FinishUpload(Number),
}

/// A request for one sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SandboxRequest {
    /// Connects to a port.
    Connect(u16),
    /// Waits for PID 1 to end.
    Wait,
    /// Whether PID 1 has ended.
    HasEnded,
    /// Samples the resource usage.
    Usage,
    /// Last connections through the egress proxy.
    EgressLog,
    /// Replaces the network policy.
    SetNetwork(Box<NetworkPolicy>),
    /// Freezes the processes and writes files to disk.
    Pause,
    /// Freezes the processes.
    Freeze,
    /// Thaws the processes.
    Resume,
    /// Takes a snapshot.
    Snapshot {
        /// Name of the snapshot.
        name: String,
        /// Account that is charged.
        account: u64,
        /// Mounts of the processes, if their memory is to be kept too.
        memory: Option<Mounted>,
    },
    /// Reclaims memory.
    Reclaim,
    /// Stores the memory on disk.
    Park {
        /// Mounts of the processes.
        mounted: Mounted,
        /// Maximum size on disk, bytes.
        max_bytes: u64,
    },
    /// Kills the processes and keeps the files.
    ShutDown,
    /// Kills the processes and deletes the files.
    Destroy,
}

/// A request for the files of a volume.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum VolumeRequest {
    /// Describes an entry.
    Stat(String),
    /// Opens a file for reading.
    Read(String),
    /// Lists a directory, down to a number of levels.
    List(String, u32),
    /// Creates a directory, and those above it if the flag is set.
    MakeDirectory(String, Attributes, bool),
    /// Changes attributes.
    SetAttributes(String, Attributes),
    /// Removes an entry; the second text is an unused name.
    Remove(String, String),
    /// Begins an upload; the second text is an unused name.
    BeginUpload(String, Attributes, String),
    /// Deletes the leftovers of interrupted work.
    Clean,
    /// Deletes a removed tree.
    TakeApart(String),
}

/// A message that is not answered. The host side works through these in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Keeps pooled sandboxes.
    KeepReady(Blueprint),
    /// Keeps few pooled sandboxes.
    KeepFewReady {
        /// Template, limits and boot message.
        blueprint: Blueprint,
        /// Maxima of what is kept.
        few: Few,
        /// A prepared sandbox that becomes one of them.
        first: Option<Number>,
    },
    /// Stops keeping pooled sandboxes of these layers.
    StopKeeping(Vec<PathBuf>),
    /// Releases what the host side holds under this number.
    Forget(Number),
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Done; what there is beside this is the number or the descriptor that comes with it.
    Done,
    /// Yes or no.
    Flag(bool),
    /// A list of names.
    Names(Vec<String>),
    /// A sandbox, with the parts of its start if it was started.
    Sandbox(Record, Vec<StartPhase>),
    /// There is none.
    Nothing,
    /// Report of a sweep.
    Swept(SweepReport),
    /// Charged bytes, if they are counted.
    Charged(Option<u64>),
    /// States of warm interpreters, with the maximum of their memory, MiB.
    WarmStates(Vec<Option<(WarmState, u64)>>),
    /// Numbers of pooled sandboxes, by template.
    PoolStates(Vec<PoolState>),
    /// A sample.
    Usage(Usage),
    /// Report of a snapshot.
    SnapshotTaken(SnapshotReport),
    /// A sealed value.
    Sealed(String),
    /// Public keys.
    PublicKeys(Vec<PublicKey>),
    /// Connections of a sandbox.
    Connections(Vec<Connection>),
    /// Number of bytes.
    Bytes(u64),
    /// Number of bytes, if there is what was asked for.
    StoredBytes(Option<u64>),
    /// An image has been imported before; the size of its files, bytes.
    ImageExists(u64),
    /// An entry of a volume.
    Entry(Entry),
    /// Entries of a volume.
    Entries(Vec<Entry>),
    /// Outcome of a removal.
    Removal(Removal),
    /// Disk space.
    Space(DiskSpace),
    /// Sizes of garbage.
    Sizes(Sizes),
}

/// Sizes of snapshots and layers, each with the bytes that nothing else has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Snapshots by name, bytes.
    pub snapshots: Vec<(String, u64)>,
    /// Layers by name, bytes.
    pub layers: Vec<(String, u64)>,
}

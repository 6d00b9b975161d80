//! The directories of one watcher, by number and by name. Pure: never accesses the file system.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::kernel::Watch;

/// A directory of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node(u32);

/// Watched directories, with the root at the top. Paths are found by walking up, so that moving a directory with
/// thousands below it is one step.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: HashMap<Node, Directory>,
    next: u32,
}

#[derive(Debug)]
struct Directory {
    watch: Watch,
    place: Place,
    children: HashMap<OsString, Node>,
    /// Entries that were reported although their event may still come.
    announced: HashSet<OsString>,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Root,
    In(Node, OsString),
    /// Detached: moved away, and not seen elsewhere yet.
    Nowhere,
}

impl Tree {
    /// Adds the directory at the top.
    pub(super) fn add_root(&mut self, watch: Watch) -> Node {
        self.insert(watch, Place::Root)
    }

    /// Adds a directory below `parent`. `None` when the name is taken or there is no such parent.
    pub(super) fn add(&mut self, parent: Node, name: &OsStr, watch: Watch) -> Option<Node> {
        if self.nodes.get(&parent)?.children.contains_key(name) {
            return None;
        }
        let node = self.insert(watch, Place::In(parent, name.to_owned()));
        self.nodes.get_mut(&parent)?.children.insert(name.to_owned(), node);
        Some(node)
    }

    fn insert(&mut self, watch: Watch, place: Place) -> Node {
        let node = Node(self.next);
        self.next = self.next.wrapping_add(1);
        let directory = Directory { watch, place, children: HashMap::new(), announced: HashSet::new() };
        self.nodes.insert(node, directory);
        node
    }

    /// The directory called `name` below `parent`.
    pub(super) fn child(&self, parent: Node, name: &OsStr) -> Option<Node> {
        self.nodes.get(&parent)?.children.get(name).copied()
    }

    /// Whether `node` is the directory at the top.
    pub(super) fn is_root(&self, node: Node) -> bool {
        self.nodes.get(&node).is_some_and(|directory| directory.place == Place::Root)
    }

    /// The path of `node` relative to the root; `None` when it is detached.
    pub(super) fn path(&self, node: Node) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = node;
        loop {
            match &self.nodes.get(&at)?.place {
                Place::Root => break,
                Place::Nowhere => return None,
                Place::In(parent, name) => {
                    names.push(name);
                    at = *parent;
                }
            }
        }
        Some(names.into_iter().rev().collect())
    }

    /// Detaches `node` from its parent, and keeps it.
    pub(super) fn detach(&mut self, node: Node) {
        let Some(directory) = self.nodes.get_mut(&node) else { return };
        if let Place::In(parent, name) = std::mem::replace(&mut directory.place, Place::Nowhere)
            && let Some(parent) = self.nodes.get_mut(&parent)
        {
            parent.children.remove(&name);
        }
    }

    /// Attaches a detached node below `parent`. The node that had that name is returned, to be removed.
    pub(super) fn attach(&mut self, node: Node, parent: Node, name: &OsStr) -> Option<Node> {
        let replaced = self.child(parent, name);
        if let Some(replaced) = replaced {
            self.detach(replaced);
        }
        if let Some(directory) = self.nodes.get_mut(&node) {
            directory.place = Place::In(parent, name.to_owned());
            if let Some(parent) = self.nodes.get_mut(&parent) {
                parent.children.insert(name.to_owned(), node);
            }
        }
        replaced
    }

    /// Removes `node` and everything below it, and returns the watches of these directories.
    pub(super) fn remove(&mut self, node: Node) -> Vec<(Node, Watch)> {
        self.detach(node);
        let mut removed = Vec::new();
        let mut left = vec![node];
        while let Some(node) = left.pop() {
            if let Some(directory) = self.nodes.remove(&node) {
                removed.push((node, directory.watch));
                left.extend(directory.children.into_values());
            }
        }
        removed
    }

    /// Removes all directories.
    pub(super) fn clear(&mut self) -> Vec<(Node, Watch)> {
        self.nodes.drain().map(|(node, directory)| (node, directory.watch)).collect()
    }

    /// Notes that `name` was reported ahead of its event.
    pub(super) fn announce(&mut self, node: Node, name: &OsStr) {
        if let Some(directory) = self.nodes.get_mut(&node) {
            directory.announced.insert(name.to_owned());
        }
    }

    /// Whether `name` was reported ahead of its event; true only once.
    pub(super) fn take_announced(&mut self, node: Node, name: &OsStr) -> bool {
        self.nodes.get_mut(&node).is_some_and(|directory| directory.announced.remove(name))
    }

    /// Drops the announced entries of `node`, when all available events are handled.
    pub(super) fn settle(&mut self, node: Node) {
        if let Some(directory) = self.nodes.get_mut(&node) {
            directory.announced = HashSet::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// `/a/b/c`, and the nodes of all four.
    fn sample() -> (Tree, [Node; 4]) {
        let mut tree = Tree::default();
        let root = tree.add_root(Watch::numbered(0));
        let a = tree.add(root, OsStr::new("a"), Watch::numbered(1)).unwrap();
        let b = tree.add(a, OsStr::new("b"), Watch::numbered(2)).unwrap();
        let c = tree.add(b, OsStr::new("c"), Watch::numbered(3)).unwrap();
        (tree, [root, a, b, c])
    }

    #[test]
    fn paths_follow_a_moved_directory() {
        let (mut tree, [root, a, b, c]) = sample();
        assert_eq!(tree.path(c).as_deref(), Some(Path::new("a/b/c")));
        tree.detach(b);
        assert_eq!(tree.path(c), None);
        assert_eq!(tree.child(a, OsStr::new("b")), None);
        assert_eq!(tree.attach(b, root, OsStr::new("x")), None);
        assert_eq!(tree.path(c).as_deref(), Some(Path::new("x/c")));
        assert_eq!(tree.path(root).as_deref(), Some(Path::new("")));
    }

    #[test]
    fn a_move_onto_another_directory_gives_that_one_back() {
        let (mut tree, [root, a, b, c]) = sample();
        tree.detach(b);
        assert_eq!(tree.attach(b, root, OsStr::new("a")), Some(a));
        assert_eq!(tree.path(c).as_deref(), Some(Path::new("a/c")));
        assert_eq!(tree.remove(a), [(a, Watch::numbered(1))]);
        assert_eq!(tree.child(root, OsStr::new("a")), Some(b));
    }

    #[test]
    fn removing_takes_all_below() {
        let (mut tree, [root, a, ..]) = sample();
        assert_eq!(tree.remove(a).len(), 3);
        assert_eq!(tree.child(root, OsStr::new("a")), None);
        assert_eq!(tree.clear(), [(root, Watch::numbered(0))]);
    }

    #[test]
    fn a_name_is_added_once() {
        let (mut tree, [root, a, ..]) = sample();
        assert_eq!(tree.add(root, OsStr::new("a"), Watch::numbered(9)), None);
        assert_eq!(tree.child(root, OsStr::new("a")), Some(a));
    }

    #[test]
    fn announcements_count_once() {
        let (mut tree, [root, ..]) = sample();
        tree.announce(root, OsStr::new("f"));
        assert!(tree.take_announced(root, OsStr::new("f")));
        assert!(!tree.take_announced(root, OsStr::new("f")));
    }
}

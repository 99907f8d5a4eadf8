//! The nodes of a cluster, and which of them keeps which hash slot.
//!
//! The map is what the nodes have said last. It may be wrong at any time: a node that is asked for a slot
//! that it does not keep says so, and a node that is gone says nothing. What to do then is left to
//! `steering`; asking the nodes anew is left to `refresh`.

use std::collections::{BTreeSet, HashSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::losses::ClusterLosses;
use super::refresh::Refresh;
use super::slots::SLOTS;
use super::view::View;
use super::waiters::ClusterWaiters;
use crate::runtime::background::Background;
use crate::store::HeldLeases;
use crate::store::redis::addresses::{Address, AddressMap};
use crate::store::redis::timeouts::Timeouts;
use crate::store::redis::{Redis, RedisConfig, too_short};

/// So many nodes are remembered that the cluster names no more: all that it names may go at once.
const MOST_FORMER: usize = 100;

/// No node is known to keep the slot.
const NOBODY: u16 = u16::MAX;

pub(super) struct Nodes {
    /// How to reach a node, but for the address.
    config: RedisConfig,
    mapped: Option<AddressMap>,
    pub(super) background: Background,
    pub(super) timeouts: Arc<Timeouts>,
    map: RwLock<SlotMap>,
    pub(super) refresh: Mutex<Refresh>,
    pub(super) waiters: ClusterWaiters,
    pub(super) losses: ClusterLosses,
}

struct SlotMap {
    /// The index of the node that keeps each slot.
    slots: Box<[u16]>,
    nodes: Vec<NamedNode>,
    /// How many were made, so that each has a channel of its own for wake-ups.
    made: u64,
}

/// A node that somebody has named: the URL, another node, or itself.
struct NamedNode {
    address: Address,
    role: Role,
    redis: Option<Arc<Redis>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// Named before, and not by the latest view.
    Former,
    Seed,
    Replica,
    Primary,
}

impl Nodes {
    pub(super) fn new(
        config: RedisConfig,
        seeds: Vec<Address>,
        mapped: Option<AddressMap>,
        background: &Background,
    ) -> Self {
        let node = |address| NamedNode {
            address,
            role: Role::Seed,
            redis: None,
        };
        Self {
            timeouts: Timeouts::start(background, config.reply_timeout),
            config,
            mapped,
            background: background.clone(),
            map: RwLock::new(SlotMap {
                slots: vec![NOBODY; SLOTS].into(),
                nodes: seeds.into_iter().map(node).collect(),
                made: 0,
            }),
            refresh: Mutex::default(),
            waiters: ClusterWaiters::default(),
            losses: ClusterLosses::default(),
        }
    }

    /// How long one request may take: for connecting and for the answer.
    pub(super) fn request_timeout(&self) -> Duration {
        self.config.connect_timeout + self.config.reply_timeout
    }

    /// How much longer a grant takes to be acknowledged by replicas, where that is asked for.
    pub(super) fn acknowledged_within(&self) -> Duration {
        let replicas = self.config.replicas;
        replicas.map_or(Duration::ZERO, |replicas| {
            replicas.timeout + self.config.reply_timeout
        })
    }

    /// Why a claim would have ended before its grant counts, if it would.
    pub(super) fn too_short(&self, ttl: Duration) -> Option<String> {
        let replicas = self.config.replicas?;
        too_short(replicas.timeout, ttl)
    }

    pub(super) fn reply_timeout(&self) -> Duration {
        self.config.reply_timeout
    }

    /// The node that is known to keep the slot.
    pub(super) fn of_slot(&self, slot: u16) -> Option<Arc<Redis>> {
        let map = self.map();
        let index = map.slots[usize::from(slot)];
        let redis = map.nodes.get(usize::from(index))?.redis.as_ref();
        redis.map(Arc::clone)
    }

    /// Where the nodes are that are known to keep the slots.
    pub(super) fn addresses_of(
        &self,
        slots: impl Iterator<Item = u16>,
    ) -> BTreeSet<Option<Address>> {
        let map = self.map();
        let indices = slots.map(|slot| usize::from(map.slots[usize::from(slot)]));
        let nodes = indices.map(|index| map.nodes.get(index));
        nodes
            .map(|node| node.map(|node| node.address.clone()))
            .collect()
    }

    /// The address at which clients reach the one that a node has named.
    pub(super) fn mapped(&self, address: Address) -> Address {
        match &self.mapped {
            None => address,
            Some(mapped) => mapped.apply(address),
        }
    }

    /// The node at this address, which need not be known yet.
    pub(super) fn at(&self, address: &Address) -> Arc<Redis> {
        let mut map = self.map_mut();
        let index = map.index(address);
        self.redis(&mut map, index)
    }

    /// The slot is kept at this address now, as a node has said.
    pub(super) fn moved(&self, slot: u16, address: &Address) -> Arc<Redis> {
        let mut map = self.map_mut();
        let index = map.index(address);
        let redis = self.redis(&mut map, index);
        map.nodes[index].role = Role::Primary;
        let mut moved = HashSet::new();
        if let Some(kept) = map.slots.get_mut(usize::from(slot)) {
            let index = u16::try_from(index).unwrap_or(NOBODY);
            if mem::replace(kept, index) != index {
                moved.insert(slot);
            }
        }
        drop(map);
        self.tell_moved(&moved);
        redis
    }

    /// Every node that keeps slots.
    pub(super) fn primaries(&self) -> Vec<Arc<Redis>> {
        let map = self.map();
        let primaries = map.nodes.iter().filter(|node| node.role == Role::Primary);
        primaries.filter_map(|node| node.redis.clone()).collect()
    }

    /// Whether somebody is known to keep each slot.
    #[cfg(feature = "inspect")]
    pub(super) fn are_all_kept(&self) -> bool {
        let map = self.map();
        let is_kept = |index: &u16| map.nodes.get(usize::from(*index)).is_some();
        map.slots.iter().all(is_kept)
    }

    /// Every node that was ever asked for something and may be yet.
    pub(super) fn asked(&self) -> Vec<Arc<Redis>> {
        let map = self.map();
        map.nodes
            .iter()
            .filter_map(|node| node.redis.clone())
            .collect()
    }

    /// Whom to ask for a view: those who keep slots, or are named by the URL; and then the others.
    pub(super) fn to_ask(&self) -> (Vec<Address>, Vec<Address>) {
        let map = self.map();
        let (first, others): (Vec<_>, Vec<_>) = map
            .nodes
            .iter()
            .partition(|node| matches!(node.role, Role::Primary | Role::Seed));
        let addresses =
            |nodes: Vec<&NamedNode>| nodes.into_iter().map(|node| node.address.clone()).collect();
        (addresses(first), addresses(others))
    }

    /// Believes these views, the best one first. What none of them says stays as it was.
    pub(super) fn believe(&self, views: &[View]) {
        let mut map = self.map_mut();
        let before = map.slots.clone();
        for node in &mut map.nodes {
            if node.role != Role::Seed {
                node.role = Role::Former;
            }
        }
        let mut named = vec![false; SLOTS];
        for range in views.iter().flat_map(|view| &view.ranges) {
            for replica in &range.replicas {
                map.names(replica, Role::Replica);
            }
            let index = map.index(&range.primary);
            self.redis(&mut map, index);
            let SlotMap { slots, nodes, .. } = &mut *map;
            let range = range.first..=range.last;
            for (kept, named) in slots[range.clone()].iter_mut().zip(&mut named[range]) {
                if !*named {
                    *named = true;
                    *kept = u16::try_from(index).unwrap_or(NOBODY);
                    nodes[index].role = Role::Primary;
                }
            }
        }
        let SlotMap { slots, nodes, .. } = &mut *map;
        for (index, _) in slots.iter().zip(named).filter(|(_, named)| !named) {
            if let Some(node) = nodes.get_mut(usize::from(*index)) {
                node.role = Role::Primary;
            }
        }
        let slots = (0..).zip(before.iter().zip(&map.slots));
        let moved = slots.filter(|(_, (before, now))| **before != NOBODY && before != now);
        let moved: HashSet<u16> = moved.map(|(slot, _)| slot).collect();
        let left = map.forget_former();
        drop(map);
        drop(left);
        self.tell_moved(&moved);
    }

    /// Those who wait for a slot that another node keeps now have to look there, and so have those who hold
    /// something in it.
    fn tell_moved(&self, moved: &HashSet<u16>) {
        self.waiters.tell_moved(|slot| self.of_slot(slot));
        self.losses.moved(moved);
    }

    /// Has leases looked at from now on that a node may have forgotten, or that another one keeps now.
    pub(super) fn tell_ended(self: &Arc<Self>, leases: HeldLeases) {
        // Each node is watched once, by this or as it is made.
        let map = self.map_mut();
        self.losses.begin(self, leases);
        for node in &map.nodes {
            if let Some(redis) = &node.redis {
                self.losses.watch(redis, &node.address);
            }
        }
    }

    /// Whether the slot is known to be kept at this address.
    pub(super) fn is_kept_at(&self, slot: u16, address: &Address) -> bool {
        let map = self.map();
        let index = map.slots[usize::from(slot)];
        let node = map.nodes.get(usize::from(index));
        node.is_some_and(|node| node.address == *address)
    }

    /// The connections to a node, which are made when they are needed.
    fn redis(&self, map: &mut SlotMap, index: usize) -> Arc<Redis> {
        let made = map.made;
        let node = &mut map.nodes[index];
        if let Some(redis) = &node.redis {
            return Arc::clone(redis);
        }
        let config = RedisConfig {
            id: format!("{}-{made}", self.config.id),
            location: self.config.location.at(&node.address),
            ..self.config.clone()
        };
        let redis = Arc::new(Redis::with(&config, &self.background, &self.timeouts, true));
        self.losses.watch(&redis, &node.address);
        node.redis = Some(Arc::clone(&redis));
        map.made += 1;
        redis
    }

    fn map(&self) -> RwLockReadGuard<'_, SlotMap> {
        // Each change leaves a map that is as good as any other that may be out of date.
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, SlotMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotMap {
    /// Where the node with this address stands.
    fn index(&mut self, address: &Address) -> usize {
        let known = self.nodes.iter().position(|node| node.address == *address);
        known.unwrap_or_else(|| {
            self.nodes.push(NamedNode {
                address: address.clone(),
                role: Role::Former,
                redis: None,
            });
            self.nodes.len() - 1
        })
    }

    fn names(&mut self, address: &Address, role: Role) {
        let index = self.index(address);
        let node = &mut self.nodes[index];
        node.role = node.role.max(role);
    }

    /// Closes the connections to nodes that the cluster names no more, where nothing is on its way there,
    /// and forgets the oldest of these nodes. The answer is what is to be dropped.
    fn forget_former(&mut self) -> Vec<Arc<Redis>> {
        let mut left = Vec::new();
        for node in &mut self.nodes {
            let is_idle = |redis: &Arc<Redis>| Arc::strong_count(redis) == 1 && redis.is_idle();
            if node.role < Role::Replica && node.redis.as_ref().is_some_and(is_idle) {
                left.extend(node.redis.take());
            }
        }
        let is_forgettable = |node: &NamedNode| node.role == Role::Former && node.redis.is_none();
        let count = self
            .nodes
            .iter()
            .filter(|node| is_forgettable(node))
            .count();
        let mut surplus = count.saturating_sub(MOST_FORMER);
        let mut index = 0;
        while surplus > 0 && index < self.nodes.len() {
            if is_forgettable(&self.nodes[index]) {
                self.remove(index);
                surplus -= 1;
            } else {
                index += 1;
            }
        }
        left
    }

    /// Removes a node that keeps no slot.
    fn remove(&mut self, index: usize) {
        self.nodes.remove(index);
        for slot in &mut self.slots {
            if *slot != NOBODY && usize::from(*slot) > index {
                *slot -= 1;
            }
        }
    }
}

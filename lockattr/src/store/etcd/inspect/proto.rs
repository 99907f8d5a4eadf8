//! The messages that looking needs, beside those of locks.

use prost::Message;

use crate::store::etcd::proto::KeyValue;

/// A part of a range; `Range` without a bound is what locks need.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangePart {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangePartAnswer {
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// Whether there is more behind them.
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusHeader {
    #[prost(uint64, tag = "1")]
    pub(super) cluster: u64,
    #[prost(uint64, tag = "2")]
    pub(super) member: u64,
}

/// What a member says of itself.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<StatusHeader>,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    /// In bytes.
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
    /// 0 where there is none.
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
    /// In bytes; what `etcdctl defrag` would leave.
    #[prost(int64, tag = "9")]
    pub(super) used: i64,
    #[prost(bool, tag = "10")]
    pub(super) is_learner: bool,
    /// In bytes; 0 of a member before version 3.6.
    #[prost(int64, tag = "12")]
    pub(super) quota: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberList {
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<Listed>,
}

/// A member, as the cluster lists it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Listed {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(bool, tag = "5")]
    pub(super) is_learner: bool,
}

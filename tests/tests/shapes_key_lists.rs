//! Lists of keys from arguments: each element of what stands in a placeholder gives a key.
#![deny(warnings, clippy::pedantic, clippy::nursery)]
#![allow(
    clippy::missing_errors_doc,
    clippy::future_not_send,
    reason = "what the code below does as its author, and not the expansion"
)]

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;

use lockattr::{Client, Error, distributed_lock};

type Key = Result<String, Error>;

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn slice(ids: &[u64]) -> Key {
    tokio::task::yield_now().await;
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn vector(ids: Vec<String>) -> Key {
    drop(ids); // the keys were made before the body
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn array(ids: [u8; 2]) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn by_reference(ids: &VecDeque<&str>) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn hash_set(ids: HashSet<u8>) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn tree_set(mut ids: BTreeSet<u8>) -> Key {
    ids.clear();
    assert!(ids.is_empty());
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn range(ids: RangeInclusive<u8>) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids.iter()>"], bind = lease)]
async fn shared(ids: Arc<[u8]>) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn behind_a_pointer(ids: Arc<Vec<u8>>, rest: &mut Vec<u8>) -> Key {
    rest.push(1);
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn exclusive(ids: &mut Vec<u8>) -> Key {
    ids.push(3);
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<rows.keys()>"], bind = lease)]
async fn map(rows: &BTreeMap<u8, String>) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn generic<T: Display + Sync>(ids: &[T]) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<ids>"], bind = lease)]
async fn opaque(ids: impl IntoIterator<Item = u8> + Clone + Send) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["row:<id>"], bind = lease)]
async fn only_one<T: Display + Send>(id: T) -> Key {
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = ["table:<table>", "row:<table>:<ids>", "log"], bind = lease)]
async fn among_others(table: &str, ids: &[u8]) -> Key {
    Ok(lease.key().to_owned())
}

struct Batch {
    rows: Vec<Row>,
    ids: Vec<u8>,
}

struct Row(u8);

impl Batch {
    fn rows(&self) -> Vec<u8> {
        self.rows.iter().map(|row| row.0).collect()
    }

    #[distributed_lock(key = ["row:<self.ids>"], bind = lease)]
    async fn by_field(&self) -> Key {
        Ok(lease.key().to_owned())
    }

    #[distributed_lock(key = ["row:<self.rows()>"], bind = lease, blocking)]
    fn by_method(&self) -> Key {
        Ok(lease.key().to_owned())
    }
}

#[tokio::test]
async fn whatever_can_be_iterated() {
    const BOTH: &str = "row:1 + row:2";
    let locks = Client::connect("memory:").await.unwrap();
    let all = async {
        assert_eq!(slice(&[2, 1, 2]).await.unwrap(), BOTH);
        assert_eq!(vector(vec!["1".into(), "2".into()]).await.unwrap(), BOTH);
        assert_eq!(array([1, 2]).await.unwrap(), BOTH);
        assert_eq!(by_reference(&["1", "2"].into()).await.unwrap(), BOTH);
        assert_eq!(hash_set([2, 1].into()).await.unwrap(), BOTH);
        assert_eq!(tree_set([2, 1].into()).await.unwrap(), BOTH);
        assert_eq!(range(1..=2).await.unwrap(), BOTH);
        assert_eq!(shared([1, 2].into()).await.unwrap(), BOTH);
        let mut rest = vec![1, 2];
        assert_eq!(exclusive(&mut rest).await.unwrap(), BOTH);
        let ids = Arc::new(vec![1, 2]);
        assert_eq!(behind_a_pointer(ids, &mut rest).await.unwrap(), BOTH);
        let rows = [(1, String::new()), (2, String::new())];
        assert_eq!(map(&rows.into()).await.unwrap(), BOTH);
        assert_eq!(generic(&["1", "2"]).await.unwrap(), BOTH);
        assert_eq!(opaque([1, 2]).await.unwrap(), BOTH);
        assert_eq!(only_one(1).await.unwrap(), "row:1");
        assert_eq!(only_one("1,2").await.unwrap(), "row:1,2");
        assert_eq!(slice(&[1]).await.unwrap(), "row:1");
        let keys = "table:t + row:t:1 + row:t:2 + log";
        assert_eq!(among_others("t", &[2, 1]).await.unwrap(), keys);
    };
    locks.scope(all).await;
    let batch = Batch {
        rows: vec![Row(1), Row(2)],
        ids: vec![1, 2],
    };
    assert_eq!(locks.scope(batch.by_field()).await.unwrap(), BOTH);
    let by_method = move || locks.scope_blocking(|| batch.by_method());
    let key = tokio::task::spawn_blocking(by_method).await.unwrap();
    assert_eq!(key.unwrap(), BOTH);
}

#[tokio::test]
async fn all_of_them_or_none() {
    let locks = Client::connect("memory:").await.unwrap();
    let held = locks.lock("row:2").acquire().await.unwrap();
    let error = locks.scope(slice(&[1, 2])).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert_eq!(locks.scope(slice(&[1, 3])).await.unwrap(), "row:1 + row:3");
    held.release().await.unwrap();
    assert_eq!(locks.scope(slice(&[1, 2])).await.unwrap(), "row:1 + row:2");
}

#[tokio::test]
async fn a_list_without_elements_and_one_with_too_many() {
    let locks = Client::connect("memory:").await.unwrap();
    let empty = locks.scope(slice(&[])).await.unwrap_err();
    assert!(matches!(empty, Error::Key(_)), "{empty}");
    assert!(empty.to_string().contains("`<ids>`"), "{empty}");
    let many: Vec<_> = (0..1_001).collect();
    let error = locks.scope(slice(&many)).await.unwrap_err();
    assert!(error.to_string().contains("at most 1000 keys"), "{error}");
    locks.scope(slice(&many[..1_000])).await.unwrap();
}

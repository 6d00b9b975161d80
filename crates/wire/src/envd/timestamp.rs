//! The message `google.protobuf.Timestamp`. The ready-made type writes `+00:00` where the original writes `Z`.

use std::fmt;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time, to the nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    /// Seconds since 1970-01-01T00:00:00Z.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds after that second, never negative.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with 0, 3, 6 or 9 digits after the point, as the JSON mapping of Protobuf requires.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = jiff::Timestamp::new(self.seconds, self.nanos).map_err(|_| fmt::Error)?;
        let digits = match self.nanos {
            0 => 0,
            n if n % 1_000_000 == 0 => 3,
            n if n % 1_000 == 0 => 6,
            _ => 9,
        };
        write!(f, "{instant:.digits$}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if jiff::Timestamp::new(self.seconds, self.nanos).is_err() {
            return Err(S::Error::custom(format!("timestamp {} s is out of range", self.seconds)));
        }
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let instant: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        // Before 1970 both parts of an instant are negative, while the nanoseconds of this message are not.
        let (seconds, nanos) = (instant.as_second(), instant.subsec_nanosecond());
        Ok(match nanos {
            ..0 => Self { seconds: seconds - 1, nanos: nanos + 1_000_000_000 },
            0.. => Self { seconds, nanos },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_that_of_the_protobuf_mapping() {
        let cases = [
            (1_763_000_000, 0, "2025-11-13T02:13:20Z"),
            (1_763_000_000, 120_000_000, "2025-11-13T02:13:20.120Z"),
            (1_763_000_000, 120_000, "2025-11-13T02:13:20.000120Z"),
            (1_763_000_000, 1, "2025-11-13T02:13:20.000000001Z"),
            (-1, 500_000_000, "1969-12-31T23:59:59.500Z"),
        ];
        for (seconds, nanos, text) in cases {
            let timestamp = Timestamp { seconds, nanos };
            assert_eq!(serde_json::to_value(timestamp).unwrap(), text);
            assert_eq!(serde_json::from_value::<Timestamp>(text.into()).unwrap(), timestamp);
        }
        assert!(serde_json::to_value(Timestamp { seconds: i64::MAX, nanos: 0 }).is_err());
    }
}

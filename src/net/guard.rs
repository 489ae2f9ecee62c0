//! Which addresses a server's entry may lead to.
//!
//! What is not plainly a public unicast address is refused, unless the entry admits it. Addresses
//! that carry another inside (IPv4-mapped, NAT64, 6to4) are judged by what they carry. The table
//! follows the IANA special-purpose registries; for IPv6 it is what is public that is listed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use reqwest::Url;
use url::Host;

/// Which addresses that are not public one server's entry admits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AllowPrivate {
    /// None.
    #[default]
    No,
    /// Every address.
    All,
    /// Those in the networks.
    Cidrs(Vec<IpNet>),
}

/// What one server's entry says about addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// What is admitted beside public addresses.
    pub allow_private: AllowPrivate,
}

impl Policy {
    /// `allowPrivate` and `ssrfWhitelist` of an entry together.
    #[must_use]
    pub fn new(allow_private: AllowPrivate, whitelist: &[IpNet]) -> Self {
        let allow_private = match allow_private {
            AllowPrivate::No if whitelist.is_empty() => AllowPrivate::No,
            AllowPrivate::No => AllowPrivate::Cidrs(whitelist.to_vec()),
            AllowPrivate::All => AllowPrivate::All,
            AllowPrivate::Cidrs(mut nets) => {
                nets.extend_from_slice(whitelist);
                AllowPrivate::Cidrs(nets)
            }
        };
        Self { allow_private }
    }

    /// Whether every address is admitted, so that nothing needs to be looked up.
    pub(super) fn admits_all(&self) -> bool {
        self.allow_private == AllowPrivate::All
    }

    /// Judge what the host of an address says by itself: a literal address, or a name that means this machine.
    ///
    /// # Errors
    /// Why the address must not be dialled.
    pub(super) fn judge_url(&self, url: &Url) -> Result<(), Refusal> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refusal(format!("only http and https are allowed, not '{}'", url.scheme())));
        }
        match url.host() {
            None => Err(Refusal("the address has no host".to_owned())),
            Some(Host::Ipv4(address)) => self.judge(None, IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => self.judge(None, IpAddr::V6(address)),
            // With networks given it depends on what the name resolves to.
            Some(Host::Domain(name)) if is_localhost(name) && self.allow_private == AllowPrivate::No => {
                self.judge(Some(name), IpAddr::V4(Ipv4Addr::LOCALHOST))
            }
            Some(Host::Domain(_)) => Ok(()),
        }
    }

    /// Judge an address, and say which name led to it.
    ///
    /// # Errors
    /// Why the address must not be dialled.
    pub(super) fn judge(&self, name: Option<&str>, address: IpAddr) -> Result<(), Refusal> {
        let Some(class) = special(address) else { return Ok(()) };
        let admitted = match &self.allow_private {
            AllowPrivate::No => false,
            AllowPrivate::All => true,
            AllowPrivate::Cidrs(nets) => {
                let plain = address.to_canonical();
                nets.iter().any(|net| net.contains(&address) || net.contains(&plain))
            }
        };
        if admitted {
            return Ok(());
        }
        let what = match name {
            Some(name) => format!("Blocked: {name} resolves to private/internal address {address} ({class})"),
            None => format!("Blocked private/internal address: {address} ({class})"),
        };
        Err(Refusal(format!("{what}; 'allowPrivate' or 'ssrfWhitelist' in the server's entry can admit it")))
    }
}

/// Why an address is not dialled. The text names the host and nothing else of the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub(super) String);

/// Whether a name means this machine, whatever a resolver says.
pub(super) fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let tail = name.len().checked_sub("localhost".len()).and_then(|at| Some((at, name.get(at..)?)));
    matches!(tail, Some((at, tail)) if tail.eq_ignore_ascii_case("localhost")
        && (at == 0 || name.as_bytes()[at - 1] == b'.'))
}

/// What an address is for if it is not an ordinary public one.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    Some(match address.octets() {
        [0, ..] => "this network",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "private network",
        [100, 64..=127, ..] => "carrier-grade NAT",
        [127, ..] => "loopback",
        [169, 254, ..] => "link-local",
        [192, 0, 0, _] => "IETF protocol assignments",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "documentation",
        [192, 88, 99, _] => "6to4 relay",
        [198, 18..=19, ..] => "benchmarking",
        [224..=239, ..] => "multicast",
        [240..=255, ..] => "reserved",
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let carried = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        special_v4(Ipv4Addr::new(a, b, c, d))
    };
    Some(match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        [0, 0, 0, 0, 0, 0xffff, high, low] // IPv4-mapped
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] // NAT64
        | [0x2002, high, low, ..] => return carried(high, low), // 6to4
        [0, 0, 0, 0, 0, 0, ..] => "IPv4-compatible",
        [0x64, 0xff9b, ..] => "local NAT64",
        [0x100, ..] => "discard only",
        [0x2001, 0x2, 0, ..] => "benchmarking",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "documentation",
        // Teredo among them, which hides an IPv4 address of anyone's choice.
        [0x2001, 0..=0x1ff, ..] => "IETF protocol assignments",
        [0xfc00..=0xfdff, ..] => "unique local",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "site-local",
        [0xff00..=0xffff, ..] => "multicast",
        // The one block that is given out for public unicast.
        [0x2000..=0x3fff, ..] => {
            // ISATAP puts an IPv4 address into the host part.
            return match segments {
                [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => carried(high, low),
                _ => None,
            };
        }
        _ => "reserved",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(policy: &Policy, url: &str) -> bool {
        policy.judge_url(&Url::parse(url).unwrap()).is_err()
    }

    #[test]
    fn no_special_address_is_public() {
        let policy = Policy::default();
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "::8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:470:0:1:0:5efe:10.0.0.1",
            "::ffff:0:127.0.0.1",
        ] {
            assert!(policy.judge(None, address.parse().unwrap()).is_err(), "{address} is let through");
        }
    }

    #[test]
    fn public_addresses_are_let_through() {
        let policy = Policy::default();
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "2001:4860:4860::8888",
        ] {
            assert!(policy.judge(None, address.parse().unwrap()).is_ok(), "{address} is refused");
        }
    }

    #[test]
    fn every_spelling_of_a_literal_address_is_understood() {
        for url in [
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://0/",
            "http://[::1]/",
            "http://[::ffff:7f00:1]/",
            "http://localhost/",
            "http://LOCALHOST./",
            "http://a.localhost:8080/x",
            "http://127.0.0.1.:80/",
            "http://１２７.0.0.1/",
        ] {
            assert!(blocked(&Policy::default(), url), "{url} is let through");
            assert!(!blocked(&Policy { allow_private: AllowPrivate::All }, url), "{url} is refused");
        }
        assert!(!blocked(&Policy::default(), "http://notlocalhost/"));
    }

    #[test]
    fn networks_admit_only_what_is_in_them() {
        let policy =
            Policy::new(AllowPrivate::No, &["127.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        for url in ["http://127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://[fd00::5]/"] {
            assert!(!blocked(&policy, url), "{url} is refused");
        }
        // What a NAT64 gateway would make of it is not this machine.
        for url in ["http://10.0.0.1/", "http://[::1]/", "http://[64:ff9b::7f00:1]/"] {
            assert!(blocked(&policy, url), "{url} is let through");
        }
    }

    #[test]
    fn the_refusal_says_what_admits_the_address() {
        let policy = Policy::default();
        let text =
            policy.judge(Some("internal.example"), "10.0.0.1".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            text,
            "Blocked: internal.example resolves to private/internal address 10.0.0.1 (private network); \
             'allowPrivate' or 'ssrfWhitelist' in the server's entry can admit it"
        );
    }

    #[test]
    fn other_schemes_are_refused() {
        for url in ["ftp://example.com/", "file:///etc/passwd", "unix:/run/x"] {
            assert!(blocked(&Policy { allow_private: AllowPrivate::All }, url), "{url} is let through");
        }
    }
}

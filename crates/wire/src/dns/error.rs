//! Why a DNS message, or a part of one, was not read.

use std::fmt;

/// A kind of damage. Each is a property of the bytes: the caller counts it by [`DnsError::as_str`]
/// and continues with the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DnsError {
    /// Fewer bytes than the twelve of a header. Drop the message.
    TooShort,
    /// The counts in the header cannot fit the message: something else uses this port. Drop it.
    NotDns,
    /// A standard query or response with more than one question, which no server may accept (RFC
    /// 9619). Drop the message.
    ManyQuestions,
    /// A compression pointer leads into the very name that holds it, or through more than
    /// [`POINTERS_MAX`](super::POINTERS_MAX) others. Records before it are good.
    NameLoop,
    /// A compression pointer leads forward. Records before it are good.
    PointerForward,
    /// A compression pointer leads into the header. Records before it are good.
    PointerIntoHeader,
    /// A name exceeds 255 bytes (RFC 1035, section 3.1). Records before it are good.
    NameTooLong,
    /// A label begins with the bits `01` or `10`, which mean nothing any more (RFC 6891).
    /// Records before it are good.
    LabelInvalid,
    /// The message ends before its sections do: cut by the capture, by the sender (TC), or its
    /// counts are wrong. Records before it are valid.
    SectionTruncated,
    /// A record's data contradicts its type. The record is omitted; others are valid.
    RdataMalformed,
}

impl DnsError {
    /// All kinds.
    pub const ALL: [DnsError; 10] = [
        DnsError::TooShort,
        DnsError::NotDns,
        DnsError::ManyQuestions,
        DnsError::NameLoop,
        DnsError::PointerForward,
        DnsError::PointerIntoHeader,
        DnsError::NameTooLong,
        DnsError::LabelInvalid,
        DnsError::SectionTruncated,
        DnsError::RdataMalformed,
    ];

    /// The spelling in counters and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            DnsError::TooShort => "dns_too_short",
            DnsError::NotDns => "dns_not_dns",
            DnsError::ManyQuestions => "dns_many_questions",
            DnsError::NameLoop => "dns_name_loop",
            DnsError::PointerForward => "dns_pointer_forward",
            DnsError::PointerIntoHeader => "dns_pointer_into_header",
            DnsError::NameTooLong => "dns_name_too_long",
            DnsError::LabelInvalid => "dns_label_invalid",
            DnsError::SectionTruncated => "dns_section_truncated",
            DnsError::RdataMalformed => "dns_rdata_malformed",
        }
    }
}

impl fmt::Display for DnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for DnsError {}

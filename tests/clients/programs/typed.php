<?php
// How the PHP clients print what they decode.

/** The value with the name of its type at each level. An object has its properties. */
function typed(mixed $value): mixed
{
    return match (true) {
        is_array($value) => ['array' => (object) array_map('typed', $value)],
        is_string($value) => 'string ' . bin2hex($value),
        $value instanceof DateTimeInterface => 'time ' . $value->getTimestamp(),
        is_object($value) => [get_class($value) => var_export($value, true)],
        default => get_debug_type($value) . ' ' . var_export($value, true),
    };
}

function show(string $routing_key, array $properties, array $headers, string $body): void
{
    echo json_encode([
        'routing_key' => $routing_key,
        'properties' => (object) array_map('typed', $properties),
        'headers' => (object) array_map('typed', $headers),
        'body' => typed($body),
    ], JSON_THROW_ON_ERROR), "\n";
}

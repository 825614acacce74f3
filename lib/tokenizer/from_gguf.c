/* from_gguf.c : the vocabulary inside a GGUF: byte-level BPE ("gpt2"), BPE over characters ("gemma4")
 * and SentencePiece ("llama").
 *
 * A GGUF names its pre-tokenizer instead of describing it. The name is taken to mean what the
 * tokenizer.json of the models it is named after says, normalisation included. */
#include <json.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "formats/gguf.h"
#include "base/error.h"
#include "tokenizer/from_json.h"

#define KEY "tokenizer.ggml."

typedef struct pre_tokenizer {
    const char *names; /* " a b ": as tokenizer.ggml.pre spells it */
    tok_split_kind split;
    bool ignore_merges, nfc;
    const char *json; /* with TOK_SPLIT_CUSTOM: the tokenizer.json member of that name */
} pre_tokenizer;

#define BYTE_LEVEL(regex)                                                                          \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":" regex "}"
#define SPLIT(regex)                                                                               \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex                                          \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define DIGITS         "{\"type\":\"Digits\",\"individual_digits\":true}"
#define SEQUENCE(list) "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"

static const pre_tokenizer pre_tokenizers[] = {
    {" gpt-2 phi-2 exaone4 gigachat a.x-4.0 mellum jais trillion granite-docling ", TOK_SPLIT_GPT2,
     false, false, NULL},
    {" mpt olmo ", TOK_SPLIT_GPT2, false, true, NULL},
    {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 glm4 glm5 chatglm-bpe ",
     TOK_SPLIT_LLAMA3, true, false, NULL},
    {" dbrx smaug-bpe ", TOK_SPLIT_LLAMA3, false, false, NULL},
    {" qwen2 ", TOK_SPLIT_QWEN2, false, true, NULL},
    {" deepseek-r1-qwen kormo megrez hunyuan grok-2 solar-open stablelm2 ", TOK_SPLIT_QWEN2, false,
     false, NULL},
    {" qwen35 ", TOK_SPLIT_QWEN35, false, true, NULL},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ", TOK_SPLIT_O200K, false, false, NULL},
    {" deepseek-llm ", TOK_SPLIT_DEEPSEEK_LLM, false, false, NULL},
    {" falcon ", TOK_SPLIT_FALCON, false, false, NULL},
    {" starcoder refact smollm codeshell exaone minerva-7b mellum2 ", TOK_SPLIT_CUSTOM, false,
     false, SEQUENCE(DIGITS "," BYTE_LEVEL("true"))},
    {" command-r ", TOK_SPLIT_CUSTOM, false, true, SEQUENCE(DIGITS "," BYTE_LEVEL("true"))},
    {" deepseek-coder ", TOK_SPLIT_CUSTOM, false, false,
     SEQUENCE(SPLIT("[\\r\\n]") "," SPLIT("\\\\s?\\\\p{L}+") "," SPLIT("\\\\s?\\\\p{P}+") "," SPLIT(
         "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+") "," DIGITS "," BYTE_LEVEL("false"))},
    {" deepseek-v3 hunyuan-dense joyai-llm hy_v4 ", TOK_SPLIT_CUSTOM, false, false,
     SEQUENCE(SPLIT("\\\\p{N}{1,3}") "," SPLIT(
         "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]"
         "+") "," SPLIT("[!\\\"#$%&'()*+,\\\\-./"
                        ":;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{"
                        "S}]?[\\\\p{L}\\\\p{M}]+| "
                        "?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|"
                        "\\\\s+") "," BYTE_LEVEL("false"))},
    {" tekken ", TOK_SPLIT_CUSTOM, true, false,
     SEQUENCE(SPLIT(
         "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{"
         "Ll}"
         "\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{"
         "Lm}"
         "\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*|\\\\p{N}| "
         "?[^\\\\s\\\\p{L}\\\\p{"
         "N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+") "," BYTE_LEVEL("fals"
                                                                                         "e"))},
};

/* What is read off the file before any token. */
typedef struct vocabulary {
    const gguf *g;
    gguf_string *tokens;
    int64_t n;
    const gguf_kv *types, *scores; /* i32 and f32 [n]; NULL: absent */
    tok_spelling spelling;
    bool scored;        /* scores order merges */
    unsigned raw_flags; /* of user-defined tokens */
} vocabulary;

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

static specrt_status unsupported(const tokenizer *tok, const char *key, gguf_string found,
                                 const char *supported, specrt_error *err) {
    return specrt_error_set(err, SPECRT_STATUS_UNSUPPORTED,
                            "%s: " KEY "%s is \"%.*s\"; supported:%s", tok->path, key,
                            found.n > 40 ? 40 : (int)found.n, found.s, supported);
}

/* An array of `type` with one element per token; NULL in *out if absent. */
static specrt_status find_array(const tokenizer *tok, const vocabulary *v, const char *key,
                                gguf_type type, const gguf_kv **out, specrt_error *err) {
    *out = sl_gguf_find(v->g, key);
    if (!*out) return SPECRT_STATUS_OK;
    bool right = (*out)->type == GGUF_ARRAY && (*out)->elem == type;
    if (right && (*out)->count == (uint64_t)v->n) return SPECRT_STATUS_OK;
    return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                            "%s: %s; expected an array of %s with one element for each of the "
                            "%lld tokens",
                            tok->path, key, type == GGUF_I32 ? "i32" : "f32", (long long)v->n);
}

static int32_t type_of(const vocabulary *v, int64_t id) {
    int32_t type = TYPE_NORMAL;
    if (v->types) memcpy(&type, v->types->value + 4 * id, sizeof type);
    return type;
}

/* A normal token: its spelling undone. What no text is cut to counts as reserved. */
static specrt_status add_normal(tokenizer *tok, const vocabulary *v, int32_t id,
                                specrt_error *err) {
    gguf_string s = v->tokens[id];
    uint8_t bytes[2 * TOK_MAX_TOKEN_BYTES];
    if (s.n > sizeof bytes) return sl_tok_set_token(tok, id, s.s, s.n, TOKEN_RESERVED, 0, err);
    size_t n = sl_tok_unspell(v->spelling, s.s, s.n, bytes);
    if (n) return sl_tok_set_token(tok, id, bytes, n, TOKEN_NORMAL, 0, err);
    return sl_tok_set_token(tok, id, s.s, s.n, TOKEN_RESERVED, 0, err);
}

static specrt_status add_token(tokenizer *tok, const vocabulary *v, int32_t id, specrt_error *err) {
    gguf_string s = v->tokens[id];
    int32_t type = type_of(v, id);
    int byte = tok->byte_fallback && type == TYPE_BYTE ? sl_tok_byte_token(s.s, s.n) : -1;
    uint8_t raw = (uint8_t)byte;
    if (byte >= 0) return sl_tok_set_token(tok, id, &raw, 1, TOKEN_NORMAL, TOK_FLAG_BYTE, err);
    if (s.n == 0) return sl_tok_reserve_ids(tok, id + 1, err);
    if (type == TYPE_NORMAL || type == TYPE_BYTE) return add_normal(tok, v, id, err);
    if (type == TYPE_UNUSED) return sl_tok_set_token(tok, id, s.s, s.n, TOKEN_RESERVED, 0, err);
    TRY(sl_tok_set_token(tok, id, s.s, s.n, sl_tok_special_type(s.s, s.n), 0, err));
    if (type != TYPE_USER_DEFINED) return SPECRT_STATUS_OK;
    return sl_tok_add_raw(tok, id, s.s, s.n, v->raw_flags, err);
}

static specrt_status add_score(tokenizer *tok, const vocabulary *v, int32_t id, specrt_error *err) {
    float score;
    memcpy(&score, v->scores->value + 4 * (size_t)id, sizeof score);
    if (isnan(score))
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: " KEY "scores[%d] is not a number", tok->path, id);
    return sl_tok_set_score(tok, id, score, err);
}

static specrt_status add_tokens(tokenizer *tok, vocabulary *v, specrt_error *err) {
    if (v->n > TOK_MAX_VOCAB)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: " KEY "tokens has %lld tokens; expected at most %d", tok->path,
                                (long long)v->n, TOK_MAX_VOCAB);
    specrt_status status = find_array(tok, v, KEY "token_type", GGUF_I32, &v->types, err);
    if (!status && v->scored) status = find_array(tok, v, KEY "scores", GGUF_F32, &v->scores, err);
    if (!status && v->scored && !v->scores)
        status = specrt_error_set(err, SPECRT_STATUS_BAD_INPUT, "%s: " KEY "scores is missing",
                                  tok->path);
    for (int32_t id = 0; id < v->n && !status; id++) {
        status = add_token(tok, v, id, err);
        if (!status && v->scored) status = add_score(tok, v, id, err);
    }
    return status ? status : sl_tok_index(tok, err);
}

/* ---- merges ---- */

/* The normal token that is spelled so; TOK_NONE if there is none. */
static int32_t find_spelled(const tokenizer *tok, const vocabulary *v, const char *s, size_t n) {
    uint8_t bytes[2 * TOK_MAX_TOKEN_BYTES];
    if (n > sizeof bytes) return TOK_NONE;
    n = sl_tok_unspell(v->spelling, s, n, bytes);
    return n ? sl_tok_find_symbol(tok, bytes, n) : TOK_NONE;
}

static specrt_status add_merge(tokenizer *tok, const vocabulary *v, gguf_string merge,
                               int64_t index, specrt_error *err) {
    const char *space = merge.n > 1 ? memchr(merge.s + 1, ' ', merge.n - 1) : NULL;
    int32_t ids[3] = {TOK_NONE, TOK_NONE, TOK_NONE};
    if (space && merge.n <= 2 * TOK_MAX_TOKEN_BYTES) {
        char whole[2 * TOK_MAX_TOKEN_BYTES];
        size_t left = (size_t)(space - merge.s), right = merge.n - left - 1;
        memcpy(whole, merge.s, left);
        memcpy(whole + left, space + 1, right);
        ids[0] = find_spelled(tok, v, merge.s, left);
        ids[1] = find_spelled(tok, v, space + 1, right);
        ids[2] = find_spelled(tok, v, whole, left + right);
    }
    if (ids[0] == TOK_NONE || ids[1] == TOK_NONE || ids[2] == TOK_NONE)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: " KEY "merges[%lld] is \"%.*s\"; expected two tokens whose "
                                "concatenation is a token",
                                tok->path, (long long)index, merge.n > 60 ? 60 : (int)merge.n,
                                merge.s);
    return sl_tok_add_merge(tok, ids[0], ids[1], ids[2], err);
}

/* An array of strings; *out NULL: there is none. */
static specrt_status get_strings(const tokenizer *tok, const gguf *g, const char *key,
                                 gguf_string **out, int64_t *n, specrt_error *err) {
    const gguf_kv *kv = sl_gguf_find(g, key);
    *out = sl_gguf_get_strings(g, key, n);
    if (*out || !kv || kv->type != GGUF_ARRAY || kv->elem != GGUF_STRING) return SPECRT_STATUS_OK;
    return sl_error_no_memory_for(err, "%s of %s", key, tok->path);
}

static specrt_status add_merges(tokenizer *tok, const vocabulary *v, specrt_error *err) {
    int64_t n;
    gguf_string *merges;
    TRY(get_strings(tok, v->g, KEY "merges", &merges, &n, err));
    if (!merges)
        return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                "%s: " KEY "merges; expected an array of strings", tok->path);
    specrt_status status = SPECRT_STATUS_OK;
    for (int64_t i = 0; i < n && !status; i++) status = add_merge(tok, v, merges[i], i, err);
    free(merges);
    return status;
}

/* ---- kinds ---- */

static const pre_tokenizer *find_pre(gguf_string name) {
    char padded[48];
    if (name.n == 0 || name.n > 40) return NULL;
    snprintf(padded, sizeof padded, " %.*s ", (int)name.n, name.s);
    for (size_t i = 0; i < sizeof pre_tokenizers / sizeof pre_tokenizers[0]; i++)
        if (strstr(pre_tokenizers[i].names, padded)) return &pre_tokenizers[i];
    return NULL;
}

static specrt_status set_custom(tokenizer *tok, const char *json, specrt_error *err) {
    json_object *spec = json_tokener_parse(json);
    if (!spec) return sl_error_no_memory(err, tok->path);
    tok_spelling spelling;
    specrt_status status = sl_tok_json_pre_tokenizer(tok, spec, &spelling, err);
    json_object_put(spec);
    return status;
}

static specrt_status load_byte_level(tokenizer *tok, vocabulary *v, specrt_error *err) {
    gguf_string name = {"", 0};
    sl_gguf_get_string(v->g, KEY "pre", &name);
    const pre_tokenizer *pre = find_pre(name);
    if (!pre) {
        char supported[1000] = "";
        for (size_t i = 0, n = 0; i < sizeof pre_tokenizers / sizeof pre_tokenizers[0]; i++)
            n +=
                (size_t)snprintf(supported + n, sizeof supported - n, "%.*s",
                                 (int)strlen(pre_tokenizers[i].names) - 1, pre_tokenizers[i].names);
        return unsupported(tok, "pre", name, supported, err);
    }
    v->spelling = TOK_SPELL_BYTE_LEVEL;
    tok->merge_order = TOK_MERGE_LISTED;
    tok->ignore_merges = pre->ignore_merges;
    tok->split = pre->split;
    if (pre->nfc) TRY(sl_tok_add_normal(tok, TOK_NORMAL_NFC, "", 0, "", 0, err));
    specrt_status status = SPECRT_STATUS_OK;
    if (pre->json) status = set_custom(tok, pre->json, err);
    if (!status) status = add_tokens(tok, v, err);
    return status ? status : add_merges(tok, v, err);
}

/* What both kinds over characters share: U+2581 for a space, byte tokens, no splitter. */
static void use_characters(tokenizer *tok, vocabulary *v) {
    int64_t unknown = 0;
    sl_gguf_get_int(v->g, KEY "unknown_token_id", &unknown);
    v->spelling = TOK_SPELL_SPACES;
    tok->chars = tok->byte_fallback = tok->spm_spaces = true;
    tok->split = TOK_SPLIT_NONE;
    if (unknown >= 0 && unknown < v->n) tok->unknown_id = (int32_t)unknown;
}

static specrt_status load_sentencepiece(tokenizer *tok, vocabulary *v, specrt_error *err) {
    int64_t prefix = 1;
    sl_gguf_get_int(v->g, KEY "add_space_prefix", &prefix);
    use_characters(tok, v);
    v->scored = true;
    tok->merge_order = TOK_MERGE_BY_SCORE;
    tok->prefix = prefix ? TOK_PREFIX_ALWAYS : TOK_PREFIX_NONE;
    tok->prefix_every_segment = true;
    return add_tokens(tok, v, err);
}

/* Gemma 4: SentencePiece's spelling, with the order of merges listed. */
static specrt_status load_gemma4(tokenizer *tok, vocabulary *v, specrt_error *err) {
    use_characters(tok, v);
    tok->merge_order = TOK_MERGE_LISTED;
    tok->fuse_unknown = true;
    TRY(add_tokens(tok, v, err));
    return add_merges(tok, v, err);
}

static specrt_status add_terminators(tokenizer *tok, const vocabulary *v, specrt_error *err) {
    static const char *const keys[] = {KEY "eos_token_id", KEY "eot_token_id", KEY "eom_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int64_t id;
        if (!sl_gguf_get_int(v->g, keys[i], &id)) continue;
        if (id < 0 || id >= v->n)
            return specrt_error_set(err, SPECRT_STATUS_BAD_INPUT,
                                    "%s: %s is %lld; expected an id below %lld", tok->path, keys[i],
                                    (long long)id, (long long)v->n);
        specrt_status status = sl_tok_add_terminator(tok, (int32_t)id, err);
        if (status) return status;
    }
    return sl_tok_add_named_terminators(tok, err);
}

static bool is(gguf_string text, const char *word) {
    return text.n == strlen(word) && memcmp(text.s, word, text.n) == 0;
}

/* Regardless of case; `word` is in lower case. */
static bool contains(gguf_string text, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.n; i++)
        if (strncasecmp(text.s + i, word, n) == 0) return true;
    return false;
}

static specrt_status load(tokenizer *tok, vocabulary *v, specrt_error *err) {
    gguf_string model = {"", 0}, name = {"", 0};
    sl_gguf_get_string(v->g, KEY "model", &model);
    TRY(get_strings(tok, v->g, KEY "tokens", &v->tokens, &v->n, err));
    if (!model.n || !v->tokens)
        return specrt_error_set(
            err, SPECRT_STATUS_BAD_INPUT,
            "%s: no tokenizer in this GGUF; expected " KEY "model and " KEY "tokens", tok->path);
    sl_gguf_get_string(v->g, "general.name", &name);
    /* Where converters and llama.cpp look too: the file has no place for this property. */
    if (contains(name, "phi-3") || contains(name, "phi3")) v->raw_flags = TOK_RAW_RSTRIP;
    snprintf(tok->name, sizeof tok->name, "%.*s (gguf)", name.n > 48 ? 48 : (int)name.n, name.s);
    specrt_status status;
    if (is(model, "gpt2"))
        status = load_byte_level(tok, v, err);
    else if (is(model, "gemma4"))
        status = load_gemma4(tok, v, err);
    else if (is(model, "llama"))
        status = load_sentencepiece(tok, v, err);
    else
        status = unsupported(tok, "model", model, " gpt2 gemma4 llama", err);
    return status ? status : add_terminators(tok, v, err);
}

specrt_status sl_tok_load_gguf(tokenizer *tok, const file_view *file, specrt_error *err) {
    gguf *g;
    specrt_status status = sl_gguf_open_memory(file->bytes, file->n, tok->path, &g, err);
    if (status) return status;
    vocabulary v = {.g = g};
    status = load(tok, &v, err);
    free(v.tokens);
    sl_gguf_close(g);
    return status;
}

# Token maps in, bundles out: forced ids first, the order kept, the size exact; bad maps are named.
. "$CLI_TESTS/lib.bash"
tokenizer=$CLI_TESTS/../../data/tokenizer.json golden=$CLI_TESTS/../golden/maps
import() { specrt-bundle import "$@" --tokenizer "$tokenizer" -o x.specb; }
list() { specrt-bundle export x.specb --format text -q -o - "$@" | tr '\n' ' '; }

# The sample's tokenizer forces 6 ids: 2 terminators, then 4 other specials.
forced=$(echo 5 >one.txt; import one.txt --size 6 -q; list)
set -- $forced
[ $# = 6 ] || fail "forced: $forced"
rm x.specb

# as offsets 9 and 3 collide with others
printf '9\n700\n5 31000,2\n# a comment\n8 300 4 3 1\n' >map.txt
accepts import map.txt
warns "*map.txt: text list, 10 ids; size 10
*6 forced ids that the file lacks (terminators and other specials) come first
*its last 6 ids are beyond that size; --size 16 takes all"
[ "$(list)" = "${forced}9 700 5 31000 " ] || fail "list: $(list)"
[ "$(list --size 16)" = "${forced}9 700 5 31000 2 8 300 4 3 1 " ] || fail "all: $(list --size 16)"
refuses 2 "*size 17: *at most 16*" specrt-bundle export x.specb --format text --size 17 -o y
refuses 2 "*: x.specb: *" import map.txt
accepts import map.txt -f --size 16 --json
has file=x.specb 'kind=text list' values=absolute n_imported=10 n_dropped=0 n_forced_added=6 \
    n_reserved=0 n_selected=16 n_forced=6 n_valid=16

# Forced ids in the file take their place at the front and add nothing.
{ echo 9 5 700; echo "$forced"; } >whole.txt
accepts import whole.txt -f
warns "specrt-bundle: whole.txt: text list, 9 ids; size 9"
[ "$(list)" = "${forced}9 5 700 " ] || fail "whole: $(list)"

# Placeholders have no place in a list, and are counted where a file names them.
sed 's/"<tool>"/"<|reserved_special_token_7|>"/' "$CLI_TESTS/../golden/tokenizers/bytes.json" \
    >reserved.json
echo 40 347 41 >placed.txt
placed() {
    specrt-bundle import placed.txt --values absolute --tokenizer reserved.json --size 9 \
        -o r.specb "$@"
}
accepts placed
warns "*1 reserved placeholders left out of every list
*8 forced ids that *last 1 ids are beyond that size; --size 10 *"
accepts placed -f --json
has n_imported=3 n_forced_added=8 n_reserved=1 n_selected=9 n_forced=8 n_valid=10
accepts specrt-bundle export r.specb --format text --size 10 -o reserved.txt
[ "$(tail -n 2 reserved.txt | tr '\n' ' ')" = "40 41 " ] || fail "list: $(cat reserved.txt)"

# What was exported comes back the same.
specrt-bundle export x.specb --format sglang-pt -o a.pt -q
specrt-bundle export x.specb --format safetensors -o a.safetensors -q
specrt-bundle export x.specb --format npy -o npy -q
accepts import a.pt -f
warns "specrt-bundle: a.pt: torch list, 9 ids; size 9"
[ "$(list)" = "${forced}9 5 700 " ] || fail "sglang-pt: $(list)"
# A header of 640 bytes begins as a pickle of protocol 2 does.
n=$(od -An -tu8 -N8 a.safetensors | tr -d ' ')
{
    printf '\200\2\0\0\0\0\0\0' && tail -c +9 a.safetensors | head -c "$n"
    printf "%$((640 - n))s" && tail -c +$((9 + n)) a.safetensors
} >pickle.safetensors
for map in a.safetensors pickle.safetensors npy npy/t2d.npy; do
    accepts import $map -f
    case $map in
    *.safetensors) kind="safetensors d2t of offsets" ;;
    npy) kind="npy array of offsets" ;;
    *) kind="npy t2d" ;;
    esac
    warns "*: $map: $kind, 9 ids; size 9
*the ids ascend, so the file tells no frequency; a smaller size keeps low ids"
    [ "$(list)" = "${forced}5 9 700 " ] || fail "$map: $(list)"
done

# Counts decide the order of a frequency file.
accepts import "$golden/vocab_mapping.pt" --size 6 -f
warns "*vocab_mapping.pt: torch d2t of offsets, 4 ids; size 6*"
refuses 3 "*token_freq.pt: torch dict of counts read as absolute ids: entry 3 is 70000; expected \
an id in [[]0, 32768)" import "$golden/token_freq.pt" -f

echo 30000 1 29998 30000 >twice.txt
refuses 3 "*twice.txt: text list read as absolute ids: id 30000 is listed at entries 0 and 3; \
expected each id once (--dedupe keeps the first)" import twice.txt -f
accepts import twice.txt -f --dedupe --size 8
warns "*twice.txt: text list, 3 ids; size 8
*1 repeated entries left out*"
echo 7 8 8 9 >once.txt # offsets, or ids with one that is repeated
refuses 3 "*once.txt: *(last 9, some twice) and as offsets (last id 12); *" \
    import once.txt -f
accepts import once.txt -f --size 9 --values offset
accepts import once.txt -f --size 9 --values absolute --dedupe
echo 3 5 9 >both.txt
refuses 3 "*both.txt: text list reads both as absolute ids (last 9) and as offsets (last id 11); \
say which with --values absolute or --values offset" import both.txt -f
accepts import both.txt -f --size 9 --values offset
warns "*both.txt: text list of offsets, 3 ids; size 9*"
[ "$(list)" = "${forced}3 6 11 " ] || fail "offset: $(list)"
accepts import both.txt -f --size 9 --values absolute
[ "$(list)" = "${forced}3 5 9 " ] || fail "absolute: $(list)"
refuses 2 "*--values: expected absolute, offset or blocks, found 'both'" import both.txt -f \
    --values both
refuses 3 "*both.txt: size 3: *; give --size" import both.txt \
    -f --values absolute
printf '\357\273\2777 3\r\n9\r\n' >windows.txt
accepts import windows.txt -f --size 9 --values absolute
[ "$(list)" = "${forced}7 3 9 " ] || fail "byte order mark: $(list)"
echo 1 40000 >high.txt
refuses 3 "*high.txt: *entry 1 is 40000; *" import high.txt -f
refuses 3 "*legacy.pt: expected torch's zip format, found the one before version 1.6; load the \
file in torch and save it again" import "$golden/legacy.pt" -f
refuses 3 "*float.pt: pickle opcode 0x47 (BINFLOAT) is refused; only lists, dicts and tensors of \
integers are read" import "$golden/float.pt" -f
: >empty; refuses 3 "*empty: text list of 0 entries; expected at least one" import empty -f
echo hello >words
refuses 3 "*words: no token map; expected a torch .pt, .npy, safetensors, GGUF, JSON or text list" \
    import words -f
head -c 300 a.pt >cut.pt
refuses 3 "*cut.pt: zip archive: no end record; the file is cut off" import cut.pt -f
refuses 1 "*: none.pt: *" import none.pt -f
refuses 3 "*target.gguf: *tokenizer*" specrt-bundle import both.txt \
    --size 9 --values absolute --tokenizer "$CLI_TESTS/../golden/tokenizers/spm.json" \
    --model "$CLI_TESTS/../../data/sample/target.gguf" -o y.specb
mkdir folder
refuses 3 "*folder: folder without d2t.npy, model.safetensors or pytorch_model.bin" import folder -f
refuses 2 "*expected --tokenizer FILE, which has the terminators and special tokens" specrt-bundle \
    import map.txt -o y.specb
refuses 2 "*expected -o FILE" specrt-bundle import map.txt --tokenizer "$tokenizer"
refuses 3 "*: words: *" specrt-bundle import map.txt --tokenizer words -o y.specb
refuses 1 "*: /dev/full: *" specrt-bundle import whole.txt --tokenizer "$tokenizer" \
    -o /dev/full

-- For pandoc: links between Markdown pages become links between pages of the site. The other files that a page links to
-- are named on file 3, for build.sh to copy. A link to a folder without README.md becomes plain text. Code such as a
-- policy or a path may break before +, @ and /.
local source = os.getenv("SOURCE")
local files = io.open("/dev/fd/3", "w")

local function is_file(path)
    local file = io.open(path, "r")
    local readable = file and file:read(0) ~= nil
    if file then file:close() end
    return readable
end

-- a/./b/../c is a/c
local function resolved(path)
    local parts = {}
    for part in path:gmatch("[^/]+") do
        if part == ".." then table.remove(parts) elseif part ~= "." then table.insert(parts, part) end
    end
    return table.concat(parts, "/")
end

-- The link's new target; nil: none in the site.
local function site_target(target)
    local path, anchor = target:match("^([^#]*)(.*)$")
    if target:match("^%a+:") or path == "" or path:match("%.html$") then return target end
    local folder = source:match("^(.*/)") or ""
    local found = resolved(folder .. path)
    if is_file(found .. "/README.md") then return path:gsub("/?$", "/index.html") .. anchor end
    if not is_file(found) then return nil end
    if found:match("%.md$") then
        return path:gsub("README%.md$", "index.md"):gsub("%.md$", ".html") .. anchor
    end
    files:write(found, "\n")
    return target
end

function Link(link)
    local target = site_target(link.target)
    if not target then return link.content end
    link.target = target
    return link
end

function Image(image)
    image.src = site_target(image.src) or image.src
    return image
end

function Code(code)
    local escaped = code.text:gsub("[&<>]", {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;"})
    return pandoc.RawInline("html", "<code>" .. escaped:gsub("%f[+@/][+@/]", "<wbr>%0") .. "</code>")
end

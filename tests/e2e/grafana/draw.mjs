// node draw.mjs DIST MODULES REQUEST...: draws dashboards in one headless Chromium, one after the other.
//
// Each REQUEST is JSON: {dashboard, out, query: {prom, theme, from, to, scrape, vars}}. Prints a JSON list of reports.
import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";

const [dist, modules, ...requests] = process.argv.slice(2);
const puppeteer = createRequire(`${modules}/`)("puppeteer-core");
const TYPES = { ".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".json": "application/json" };

let dashboard = "";
const server = http
  .createServer((request, response) => {
    const name = path.normalize(new URL(request.url, "http://page").pathname);
    const file = name === "/dashboard.json" ? dashboard : path.join(dist, name === "/" ? "index.html" : name);
    fs.readFile(file, (error, content) => {
      response.writeHead(error ? 404 : 200, {
        "content-type": TYPES[path.extname(file)] || "application/octet-stream",
      });
      response.end(content);
    });
  })
  .listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));

const browser = await puppeteer.launch({
  executablePath: process.env.CHROME,
  headless: true,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
  ],
  // Higher than any dashboard: tables draw only the rows that can be seen.
  defaultViewport: { width: 1600, height: 4000 },
});
const reports = [];
try {
  for (const { dashboard: file, out, query } of requests.map((text) => JSON.parse(text))) {
    dashboard = file;
    const page = await browser.newPage();
    const errors = new Set();
    page.on("pageerror", (error) => errors.add(error.message));
    await page.goto(`http://127.0.0.1:${server.address().port}/?${new URLSearchParams(query)}`);
    await page.waitForFunction("window.DONE === true", { timeout: 120_000 });
    reports.push({ ...(await page.evaluate(() => window.REPORT)), errors: [...errors] });
    await (await page.$("#root > div")).screenshot({ path: out });
    await page.close();
  }
} finally {
  await browser.close();
  server.close();
}
console.log(JSON.stringify(reports));
